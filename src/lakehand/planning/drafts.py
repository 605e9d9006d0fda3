"""Groups during planning, as arrays: the rewrite method of each, then their values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.footer_survey import Files, medians_by_owner, sum_by_owner
from lakehand.planning.plan import (
    PlannedGroup,
    TablePaths,
    expected_file_counts,
    one_array,
    task_seconds,
)
from lakehand.planning.policy import CHOSEN, CompactionPolicy, Reason, code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakehand.planning.footer_survey import Flags, Integers, Rows
    from lakehand.planning.policy import ReasonCodes


# The rewrite method of a group

_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRule:
    """Conditions for copying row groups."""

    #: The median row group has at least these bytes or these rows.
    min_median_bytes: int = 4 * _MIB
    min_median_rows: int = 100_000
    #: At most this fraction of the rows is in tiny row groups.
    max_tiny_group_row_ratio: float = 0.1
    #: Maximum number of row groups in an output, by its size and in total.
    max_row_groups_per_128_mib: int = 64
    max_row_groups: int = 1000
    #: With several outputs, no row group is larger than this fraction of one.
    max_row_group_ratio: float = 0.2
    #: Other files may be re-encoded into the copy if at least this fraction of the bytes is copied.
    min_copied_ratio: float = 0.5

    def is_healthy(self, *, median_bytes: float, median_rows: float) -> bool:
        return median_bytes >= self.min_median_bytes or median_rows >= self.min_median_rows

    def row_group_limit(self, data_bytes: int, files: int) -> int:
        """Return how many row groups this many files may have together."""
        by_size = self.max_row_groups_per_128_mib * max(1.0, data_bytes / (128 * _MIB))
        return min(self.max_row_groups * max(1, files), int(by_size))

    def largest_divisible(self, data_bytes: int, files: int) -> float:
        """Return the maximum size of row groups: half of one is the error of a file's size."""
        return self.max_row_group_ratio * data_bytes / files if files > 1 else float("inf")


DEFAULT_RULE = CopyRule()


def are_tiny(files: Files, rule: CopyRule = DEFAULT_RULE) -> Flags:
    """Return which files are too small to have a row group that is worth copying."""
    has_few_rows = (files.rows >= 0) & (files.rows < rule.min_median_rows)
    tiny: Flags = (files.bytes < rule.min_median_bytes) & has_few_rows
    return tiny


def copy_affinity(files: Files, rule: CopyRule = DEFAULT_RULE) -> Integers:
    """Return a number for each file: files with equal numbers above 0 can be copied together.

    Packing them separately from files that must be re-encoded avoids decoding most bytes.
    """
    groups, count = files.survey.row_groups, len(files)
    median_bytes = medians_by_owner(groups.bytes, groups.owner, count)
    median_rows = medians_by_owner(groups.rows, groups.owner, count)
    healthy = (median_bytes >= rule.min_median_bytes) | (median_rows >= rule.min_median_rows)
    tiny_group_rows = sum_by_owner(groups.rows * groups.are_tiny_groups(_MIB), groups.owner, count)
    healthy &= tiny_group_rows <= rule.max_tiny_group_row_ratio * files.survey.rows
    copyable: Flags = healthy & ~files.has_deleted_rows & (files.survey.copy_class >= 0)
    return np.where(copyable, files.survey.copy_class + 1, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodChoice:
    """The method, and why."""

    method: Literal["copy", "recode", "sort"]
    #: Shown to users.
    reason: str
    #: Files that cannot or should not be copied are re-encoded first, and the result is copied.
    mixes: bool = False


SORT = MethodChoice(method="sort", reason="rows are sorted")


@lru_cache(maxsize=1024)
def choose_method(facts: GroupFacts, rule: CopyRule = DEFAULT_RULE) -> MethodChoice:
    """Choose `copy` if the bytes have the same meaning in the new file and a good layout."""
    obstacle = next(_obstacles(facts), None) or next(_flaws(facts, rule), None)
    if obstacle is None:
        return MethodChoice(method="copy", reason="row groups of sufficient size and of one kind")
    if _can_mix(facts, rule):
        recoded = format_count(facts.file_count - facts.moved_files, "file")
        reason = f"row groups of sufficient size, and {recoded} to re-encode: {obstacle}"
        return MethodChoice(method="copy", reason=reason, mixes=True)
    return MethodChoice(method="recode", reason=obstacle)


def _obstacles(facts: GroupFacts) -> Iterator[str]:
    """Yield what makes it impossible to copy all files."""
    if facts.has_deleted_rows:
        yield "deleted rows are dropped"
    if facts.tiny_files:
        yield f"{format_count(facts.tiny_files, 'file')} too small for a reasonable row group"
    if not facts.is_surveyed:
        yield "not all footers were read"
    if facts.refusal is not None:
        yield facts.refusal
    if facts.copy_class_count > 1:
        yield "the files differ in schema, codec or calendar"


def _flaws(facts: GroupFacts, rule: CopyRule) -> Iterator[str]:
    """Yield what a copy would preserve and a re-encoding would fix."""
    if not rule.is_healthy(
        median_bytes=facts.median_row_group_bytes, median_rows=facts.median_row_group_rows
    ):
        size = format_bytes(facts.median_row_group_bytes)
        yield f"row groups are small: half of them below {size}"
    if facts.tiny_group_rows > rule.max_tiny_group_row_ratio * facts.rows:
        share = facts.tiny_group_rows / facts.rows
        yield f"{share:.0%} of the rows are in very small row groups"
    if facts.row_group_count > rule.row_group_limit(facts.data_bytes, facts.expected_files):
        yield f"{format_count(facts.row_group_count, 'row group')} are too many"
    if facts.largest_row_group_bytes > rule.largest_divisible(
        facts.data_bytes, facts.expected_files
    ):
        size = format_bytes(facts.largest_row_group_bytes)
        yield f"row groups of {size} cannot be divided evenly among files"


def _can_mix(facts: GroupFacts, rule: CopyRule) -> bool:
    """Return whether enough bytes can be copied into one file with re-encoded rows."""
    return (
        facts.joins_recoded
        and facts.expected_files == 1
        and 0 < facts.moved_files < facts.file_count
        and facts.moved_bytes >= rule.min_copied_ratio * facts.live_bytes
        and facts.moved_row_group_count <= rule.row_group_limit(facts.moved_bytes, 1)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupFacts:
    """Facts about the files of a group, from the table and the footers."""

    #: Whether the footers of all copyable files were read.
    is_surveyed: bool
    has_deleted_rows: bool = False
    #: Why one of the files must not be copied.
    refusal: str | None = None
    copy_class_count: int = 1
    #: Output files of a copy.
    expected_files: int = 1
    row_group_count: int = 0
    median_row_group_bytes: int = 0
    median_row_group_rows: int = 0
    largest_row_group_bytes: int = 0
    rows: int = 0
    data_bytes: int = 0
    #: Rows in tiny row groups.
    tiny_group_rows: int = 0

    file_count: int = 0
    live_bytes: int = 0
    #: Files that are too small for their footers to be read.
    tiny_files: int = 0
    #: Files that can be copied if the others are re-encoded first: of one copy class, with
    #: reasonable row groups.
    moved_files: int = 0
    moved_bytes: int = 0
    moved_row_group_count: int = 0
    #: Whether re-encoded rows may be row groups of the same file.
    joins_recoded: bool = False


def find_moved(files: Files, group_of_file: Integers) -> Flags:
    """Select the files of each group to copy if others are re-encoded: the class with most bytes.

    `group_of_file` is -1 for files in no group.
    """
    affinity = copy_affinity(files)
    able = np.flatnonzero((group_of_file >= 0) & (affinity > 0))
    pairs = np.stack([group_of_file[able], affinity[able]], axis=1)
    kinds, kind_of_file = np.unique(pairs, axis=0, return_inverse=True)
    sizes = sum_by_owner(files.live_bytes[able], kind_of_file.ravel(), len(kinds))
    # The last class of each group is the one that is kept.
    order = np.lexsort((-kinds[:, 1], sizes, kinds[:, 0]))
    largest = np.zeros(int(group_of_file.max(initial=-1)) + 1, np.int64)
    largest[kinds[order, 0]] = kinds[order, 1]
    moved = np.zeros(len(files), np.bool_)
    moved[able] = affinity[able] == largest[group_of_file[able]]
    return moved


def read_facts(
    files: Files,
    group_of_file: Integers,
    moved: Flags,
    expected_files: Integers,
    *,
    tiny_group_bytes: float,
) -> list[GroupFacts]:
    """Return the facts of every group; `group_of_file` is -1 for files in none."""
    count = len(expected_files)
    inside = np.flatnonzero(group_of_file >= 0)
    figures = _file_figures(files, group_of_file[inside], inside, moved, count)
    figures |= _row_group_figures(
        files, group_of_file, moved, count, tiny_group_bytes=tiny_group_bytes
    )
    figures["expected_files"] = expected_files
    names, columns = list(figures), [column.tolist() for column in figures.values()]
    refusals = _refusals(files, group_of_file, inside)
    return [
        GroupFacts(**dict(zip(names, row, strict=True)), refusal=refusals.get(number))
        for number, row in enumerate(zip(*columns, strict=True))
    ]


def _file_figures(
    files: Files, group: Integers, inside: Integers, moved: Flags, count: int
) -> dict[str, Integers | Flags]:
    survey, moves = files.survey, moved[inside]
    is_tiny = are_tiny(files)[inside] & ~survey.is_surveyed[inside]
    is_missing = ~survey.is_surveyed[inside] & ~is_tiny

    def add_up(values: Integers | Flags) -> Integers:
        return sum_by_owner(values.astype(np.int64), group, count)

    return {
        "is_surveyed": add_up(is_missing) == 0,
        "has_deleted_rows": add_up(files.has_deleted_rows[inside]) > 0,
        "copy_class_count": _count_classes(group, survey.copy_class[inside], count),
        "file_count": np.bincount(group, minlength=count),
        "live_bytes": add_up(files.live_bytes[inside]),
        "tiny_files": add_up(is_tiny),
        "moved_files": add_up(moves),
        "moved_bytes": add_up(files.live_bytes[inside] * moves),
        "joins_recoded": add_up(survey.joins_recoded[inside] & moves) > 0,
    }


def _row_group_figures(
    files: Files, group_of_file: Integers, moved: Flags, count: int, *, tiny_group_bytes: float
) -> dict[str, Integers]:
    groups = files.survey.row_groups
    owner = group_of_file[groups.owner]
    kept = owner >= 0
    owner, sizes, rows = owner[kept], groups.bytes[kept], groups.rows[kept]
    is_tiny_group = groups.are_tiny_groups(tiny_group_bytes)[kept]
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, owner, sizes)
    moves = moved[groups.owner[kept]].astype(np.int64)
    return {
        "row_group_count": np.bincount(owner, minlength=count),
        "median_row_group_bytes": medians_by_owner(sizes, owner, count),
        "median_row_group_rows": medians_by_owner(rows, owner, count),
        "largest_row_group_bytes": largest,
        "rows": sum_by_owner(rows, owner, count),
        "data_bytes": sum_by_owner(sizes, owner, count),
        "tiny_group_rows": sum_by_owner(rows * is_tiny_group, owner, count),
        "moved_row_group_count": sum_by_owner(moves, owner, count),
    }


def _count_classes(group: Integers, copy_class: Integers, count: int) -> Integers:
    class_limit = int(copy_class.max(initial=0)) + 2
    pairs = np.unique(group * class_limit + copy_class + 1)
    return np.bincount(pairs // class_limit, minlength=count)


def _refusals(files: Files, group_of_file: Integers, inside: Integers) -> dict[int, str]:
    """Return why a file of a group must not be copied, for groups with such a file."""
    survey = files.survey
    refused = inside[(survey.copy_class[inside] < 0) & survey.is_surveyed[inside]]
    refusals = survey.refusal.take(refused).to_pylist()
    return {
        group: word or "a file must not be copied"
        for group, word in zip(group_of_file[refused].tolist(), refusals, strict=True)
    }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Drafts:
    """Groups, one entry each."""

    #: Rows of the table of files, group after group.
    positions: Rows
    #: Inputs whose row groups are copied; the others are re-encoded.
    is_moved: Flags
    #: Start of each group in `positions`, and the end.
    bounds: Integers
    input_bytes: Integers
    expected_bytes: Integers
    expected_files: Integers
    target_file_bytes: Integers
    task_seconds: np.typing.NDArray[np.float64]
    methods: list[MethodChoice]
    reasons: list[str]

    def __len__(self) -> int:
        return len(self.input_bytes)

    @classmethod
    def concatenated(cls, drafts: Sequence[Drafts]) -> Drafts:
        """Return the groups of all."""
        counts = np.concatenate([draft.input_counts for draft in drafts])
        arrays = set(cls.__slots__) - {"bounds", "methods", "reasons"}
        return cls(
            bounds=np.concatenate(([0], np.cumsum(counts))),
            methods=[method for draft in drafts for method in draft.methods],
            reasons=[reason for draft in drafts for reason in draft.reasons],
            **{name: np.concatenate([getattr(one, name) for one in drafts]) for name in arrays},
        )

    @property
    def file_count(self) -> int:
        return len(self.positions)

    @property
    def input_counts(self) -> Integers:
        return np.diff(self.bounds)

    def take(self, numbers: Integers) -> Drafts:
        """Return some of the groups, in the order of `numbers`."""
        spans = [self.positions[self.bounds[n] : self.bounds[n + 1]] for n in numbers]
        moves = [self.is_moved[self.bounds[n] : self.bounds[n + 1]] for n in numbers]
        return Drafts(
            positions=np.concatenate([np.zeros(0, np.int32), *spans]),
            is_moved=np.concatenate([np.zeros(0, np.bool_), *moves]),
            bounds=np.concatenate(([0], np.cumsum(self.input_counts[numbers]))),
            input_bytes=self.input_bytes[numbers],
            expected_bytes=self.expected_bytes[numbers],
            expected_files=self.expected_files[numbers],
            target_file_bytes=self.target_file_bytes[numbers],
            task_seconds=self.task_seconds[numbers],
            methods=[self.methods[n] for n in numbers],
            reasons=[self.reasons[n] for n in numbers],
        )

    def to_groups(
        self, paths: pa.ChunkedArray, partitions: Sequence[str]
    ) -> tuple[PlannedGroup, ...]:
        """Turn the groups into values, numbered in this order."""
        column = one_array(paths)
        columns = (
            partitions,
            self.input_bytes.tolist(),
            self.expected_bytes.tolist(),
            self.expected_files.tolist(),
            self.target_file_bytes.tolist(),
            self.task_seconds.tolist(),
        )
        rows = zip(
            pairwise(self.bounds.tolist()), self.methods, self.reasons, *columns, strict=True
        )
        return tuple(
            PlannedGroup(
                id=number,
                partition=partition,
                paths=TablePaths(column, self.positions[start:end]),
                input_bytes=read,
                reason=reason,
                method=choice.method,
                method_reason=choice.reason,
                recoded=self._recoded(choice, start, end),
                target_file_bytes=target,
                expected_files=files,
                expected_bytes=written,
                task_seconds=seconds,
            )
            for number, (
                (start, end),
                choice,
                reason,
                partition,
                read,
                written,
                files,
                target,
                seconds,
            ) in enumerate(rows)
        )

    def _recoded(self, choice: MethodChoice, start: int, end: int) -> tuple[int, ...]:
        """Return the indexes of the inputs that a copy re-encodes first."""
        if not choice.mixes:
            return ()
        return tuple(np.flatnonzero(~self.is_moved[start:end]).tolist())


def draft_groups(
    files: Files,
    reasons: ReasonCodes,
    group_of_file: Integers,
    policy: CompactionPolicy,
    *,
    sorts: bool = False,
) -> Drafts:
    """Compute method, forecast and cost of every group; its inputs are in the order of `files`."""
    inside = np.flatnonzero(group_of_file >= 0)
    positions = inside[np.argsort(group_of_file[inside], kind="stable")].astype(np.int32)
    group = group_of_file[positions]
    count = int(group.max(initial=-1)) + 1
    moved = find_moved(files, group_of_file)
    live = sum_by_owner(files.live_bytes[positions], group, count)
    counts = expected_file_counts(live, policy)
    facts = read_facts(
        files, group_of_file, moved, counts, tiny_group_bytes=policy.tiny_group_bytes
    )
    methods = [SORT if sorts else choose_method(fact) for fact in facts]
    is_moved = _moved_inputs(methods, moved[positions], group)
    read = sum_by_owner(files.bytes[positions], group, count)
    copied = sum_by_owner(files.live_bytes[positions] * is_moved, group, count)
    encoded = sum_by_owner(files.expected_bytes[positions] * ~is_moved, group, count)
    outputs = expected_file_counts(copied + encoded, policy)
    input_counts = np.bincount(group, minlength=count)
    return Drafts(
        positions=positions,
        is_moved=is_moved,
        bounds=np.concatenate(([0], np.cumsum(input_counts))),
        input_bytes=read,
        expected_bytes=copied + encoded,
        expected_files=outputs,
        target_file_bytes=_targets(live, copied + encoded, outputs, policy),
        task_seconds=task_seconds(
            copied_bytes=copied,
            recoded_bytes=sum_by_owner(files.bytes[positions] * ~is_moved, group, count),
            encoded_bytes=encoded,
            file_counts=input_counts,
        ),
        methods=methods,
        reasons=list(_reasons(reasons[positions], group, count, policy)),
    )


def _moved_inputs(methods: Sequence[MethodChoice], moved: Flags, group: Integers) -> Flags:
    """Return for each input whether its row groups are copied: in a copy all, unless it mixes."""
    is_copy = np.array([choice.method == "copy" for choice in methods], np.bool_)
    mixes = np.array([choice.mixes for choice in methods], np.bool_)
    return is_copy[group] & (moved | ~mixes[group])


def _targets(
    live: Integers, expected: Integers, outputs: Integers, policy: CompactionPolicy
) -> Integers:
    """Return the target size of outputs: several have even sizes, a single one has no limit."""
    even = -(-expected // np.maximum(outputs, 1))
    return np.where(outputs > 1, even, np.maximum(live, policy.target_file_bytes))


def _reasons(
    codes: ReasonCodes, group: Integers, count: int, policy: CompactionPolicy
) -> Iterator[str]:
    """Yield a sentence for each group with the number of its files by reason."""
    descriptions = {
        Reason.WORN: f"with more than {policy.deleted_row_ratio:.0%} of rows deleted",
        Reason.OVERSIZED: f"above {format_bytes(policy.oversized_file_bytes)}",
        Reason.SMALL_ROW_GROUPS: "with very small row groups",
        Reason.SMALL: f"below {format_bytes(policy.small_file_bytes)}",
        Reason.UNORDERED: "not clustered yet",
        Reason.OVERLAPPING: "with too much overlap",
        Reason.ASKED_FOR: "clustered already, but requested",
    }
    counts = {
        reason: np.bincount(group[codes == code_of(reason)], minlength=count).tolist()
        for reason in CHOSEN
    }
    for number in range(count):
        yield ", ".join(
            f"{format_count(counts[reason][number], 'file')} {descriptions[reason]}"
            for reason in descriptions
            if counts[reason][number]
        )


def split_at_caps(drafts: Drafts, policy: CompactionPolicy) -> tuple[Drafts, Drafts]:
    """Return the groups of this run, largest first, and those for later ones.

    With a limit, groups that remove most files for their bytes come first; a group that exceeds the
    limit is skipped in favour of smaller ones.
    """
    order = _most_worthwhile_first(drafts, policy)
    kept = np.array(list(_within_caps(drafts, order, policy)), np.int64)
    later = np.setdiff1d(order, kept)
    return drafts.take(kept[np.lexsort((kept, -drafts.input_bytes[kept]))]), drafts.take(later)


def _most_worthwhile_first(drafts: Drafts, policy: CompactionPolicy) -> Integers:
    fewer_files = drafts.input_counts - drafts.expected_files
    fewer_bytes = (drafts.input_bytes - drafts.expected_bytes) / policy.target_file_bytes
    gain = (fewer_files + fewer_bytes) / np.maximum(1, drafts.input_bytes)
    return np.lexsort((np.arange(len(drafts)), -gain))


def _within_caps(drafts: Drafts, order: Integers, policy: CompactionPolicy) -> Iterator[int]:
    no_cap = np.iinfo(np.int64).max
    bytes_left = policy.max_bytes_per_run or no_cap
    files_left = policy.max_files_per_run or no_cap
    groups_left = policy.max_groups_per_run or no_cap
    sizes, counts = drafts.input_bytes.tolist(), drafts.input_counts.tolist()
    for number in order.tolist():
        if sizes[number] <= bytes_left and counts[number] <= files_left and groups_left:
            bytes_left -= sizes[number]
            files_left -= counts[number]
            groups_left -= 1
            yield number
