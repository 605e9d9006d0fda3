"""Statistics of a file that holds the rows of several files, from theirs alone.

Row groups that are moved byte for byte are not decoded, so nobody sees their rows. Counts add up;
bounds are kept where every file with values has one; what cannot be told is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.files.statistics_tree import Tree, put, tree_text
from lakehand.formats.delta.protocol.members import load_json
from lakehand.formats.delta.protocol.schema import PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.formats.delta.files.statistics_rules import StatisticsRules
    from lakehand.formats.delta.protocol.schema import Leaf

__all__ = ["MAX", "MIN", "NULLS", "comparable", "member", "merge_statistics", "parse_statistics"]

MIN, MAX, NULLS = "minValues", "maxValues", "nullCount"
_TEXT_KINDS = ("string", "char", "varchar")


def merge_statistics(
    texts: Sequence[str | None], row_counts: Sequence[int], rules: StatisticsRules
) -> str:
    """Return `add.stats` of a file that holds all rows of the files with the statistics `texts`.

    `row_counts` are the files' physical rows, by their footers; no row of them is deleted.
    """
    files = [parse_statistics(text) for text in texts]
    minima: Tree = {}
    maxima: Tree = {}
    counts: Tree = {}
    for leaf in rules.leaves:
        nulls = [member(file, NULLS, leaf) for file in files]
        put(counts, leaf, _sum_text(nulls))
        all_null = [count == rows for count, rows in zip(nulls, row_counts, strict=True)]
        with_values = [file for file, is_null in zip(files, all_null, strict=True) if not is_null]
        put(
            minima,
            leaf,
            _bound_text([member(file, MIN, leaf) for file in with_values], leaf, min),
        )
        put(
            maxima,
            leaf,
            _bound_text([member(file, MAX, leaf) for file in with_values], leaf, max),
        )
    document: Tree = {"numRecords": str(sum(row_counts))}
    document |= {MIN: minima, MAX: maxima, NULLS: counts}
    if rules.states_tightness:
        is_tight = all(file.get("tightBounds", True) is True for file in files)
        document["tightBounds"] = "true" if is_tight else "false"
    return tree_text(document)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it was written."""

    text: str


def parse_statistics(text: str | None) -> dict[str, Any]:
    """Return statistics with their numbers as written; nothing where they cannot be read."""
    try:
        parsed = load_json(text, parse_float=_Number) if text else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def member(file: Mapping[str, Any], name: str, leaf: Leaf) -> Any:
    """Return what statistics say of a leaf under `name`; None where they say nothing."""
    value: Any = file.get(name)
    for part in leaf.physical_path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _sum_text(counts: Sequence[Any]) -> str | None:
    return str(sum(counts)) if all(isinstance(count, int) for count in counts) else None


def _bound_text(bounds: Sequence[Any], leaf: Leaf, choose: Callable[..., Any]) -> str | None:
    """Return the outermost bound; None if a file has none, or one that cannot be compared."""
    if not bounds or not isinstance(leaf.type, PrimitiveType):
        return None
    kind = leaf.type.name
    try:
        bound = choose(bounds, key=lambda candidate: comparable(candidate, kind))
    except (TypeError, ValueError, ArithmeticError):
        return None
    return bound.text if isinstance(bound, _Number) else json.dumps(bound, ensure_ascii=False)


def comparable(bound: Any, kind: str) -> Any:
    """Return a bound as a value that sorts as the values of `kind` do; ValueError if none does."""
    if kind in {"timestamp", "timestamp_ntz"}:
        at = datetime.fromisoformat(bound)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    if kind == "date":
        # Texts of years before 0 and after 9999 do not sort as dates do; they are refused here.
        return date.fromisoformat(bound)
    if isinstance(bound, str):
        if not kind.startswith(_TEXT_KINDS):
            # "NaN" and infinities: engines do not agree where they sort.
            raise ValueError(f"{bound!r} has no place in the order of {kind}")
        return bound.encode()
    if isinstance(bound, bool):
        raise TypeError(f"{kind} has no bounds")
    return Decimal(bound.text if isinstance(bound, _Number) else bound)
