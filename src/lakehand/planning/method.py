"""How a group is rewritten: its row groups moved byte for byte, or its rows written anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.copy_rule import DEFAULT_RULE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.planning.copy_rule import CopyRule
    from lakehand.planning.group_facts import GroupFacts

__all__ = ["SORT", "MethodChoice", "choose_method"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodChoice:
    """The method, and why."""

    method: Literal["copy", "recode", "sort"]
    #: Shown to users.
    reason: str
    #: Files that cannot or should not be moved are recoded first, and moved as what came of them.
    mixes: bool = False


SORT = MethodChoice(method="sort", reason="rows are put in order")


@lru_cache(maxsize=1024)
def choose_method(facts: GroupFacts, rule: CopyRule = DEFAULT_RULE) -> MethodChoice:
    """Choose `copy` where the bytes mean the same in the new file and are worth keeping."""
    obstacle = next(_obstacles(facts), None) or next(_flaws(facts, rule), None)
    if obstacle is None:
        return MethodChoice(method="copy", reason="healthy row groups of one kind")
    if _can_mix(facts, rule):
        recoded = format_count(facts.file_count - facts.moved_files, "file")
        reason = f"healthy row groups, and {recoded} to recode beside them: {obstacle}"
        return MethodChoice(method="copy", reason=reason, mixes=True)
    return MethodChoice(method="recode", reason=obstacle)


def _obstacles(facts: GroupFacts) -> Iterator[str]:
    """Yield what makes it impossible to copy all files."""
    if facts.has_deleted_rows:
        yield "deleted rows are dropped"
    if facts.tiny_files:
        yield f"{format_count(facts.tiny_files, 'file')} too small for a healthy row group"
    if not facts.is_surveyed:
        yield "not all footers were read"
    if facts.refusal is not None:
        yield facts.refusal
    if facts.copy_class_count > 1:
        yield "the files differ in schema, codec or calendar"


def _flaws(facts: GroupFacts, rule: CopyRule) -> Iterator[str]:
    """Yield what a copy would preserve and a rewrite would mend."""
    if not rule.is_healthy(
        median_bytes=facts.median_row_group_bytes, median_rows=facts.median_row_group_rows
    ):
        size = format_bytes(facts.median_row_group_bytes)
        yield f"row groups are small: half of them below {size}"
    if facts.crumb_rows > rule.max_crumb_row_ratio * facts.rows:
        share = facts.crumb_rows / facts.rows
        yield f"{share:.0%} of the rows are in row groups far below a healthy size"
    if facts.row_group_count > rule.row_group_limit(facts.data_bytes, facts.expected_files):
        yield f"{format_count(facts.row_group_count, 'row group')} are too many"
    if facts.largest_row_group_bytes > rule.largest_divisible(
        facts.data_bytes, facts.expected_files
    ):
        size = format_bytes(facts.largest_row_group_bytes)
        yield f"row groups of {size} cannot be divided evenly among files"


def _can_mix(facts: GroupFacts, rule: CopyRule) -> bool:
    """Say whether enough of the bytes can be moved, into one file with rows written anew."""
    return (
        facts.joins_recoded
        and facts.expected_files == 1
        and 0 < facts.moved_files < facts.file_count
        and facts.moved_bytes >= rule.min_copied_ratio * facts.live_bytes
        and facts.moved_row_group_count <= rule.row_group_limit(facts.moved_bytes, 1)
    )
