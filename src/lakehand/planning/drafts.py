"""Groups on their way into a plan: arrays as long as there may be many, values in the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.model.quantities import format_bytes, format_count
from lakehand.planning.forecast import expected_file_counts, task_seconds
from lakehand.planning.group_facts import find_moved, read_facts
from lakehand.planning.method import SORT, choose_method
from lakehand.planning.plan import PlannedGroup
from lakehand.planning.reasons import CHOSEN, Reason, code_of
from lakehand.planning.surveyed import sum_by_owner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.planning.candidates import Files
    from lakehand.planning.method import MethodChoice
    from lakehand.planning.policy import CompactionPolicy
    from lakehand.planning.reasons import ReasonCodes
    from lakehand.planning.surveyed import Flags, Integers

__all__ = ["Drafts", "draft_groups", "split_at_caps"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Drafts:
    """Groups, one entry each."""

    #: Rows of the table of files, group after group.
    positions: Integers
    #: Inputs whose row groups are moved; the others are recoded.
    is_moved: Flags
    #: Where each group begins in `positions`, and one entry more for the end.
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
            positions=np.concatenate([np.zeros(0, np.int64), *spans]),
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

    def to_groups(self, paths: pa.ChunkedArray) -> tuple[PlannedGroup, ...]:
        """Turn the groups into values, numbered in this order."""
        names = paths.take(pa.array(self.positions)).to_pylist()
        columns = (
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
                paths=tuple(names[start:end]),
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
                read,
                written,
                files,
                target,
                seconds,
            ) in enumerate(rows)
        )

    def _recoded(self, choice: MethodChoice, start: int, end: int) -> tuple[int, ...]:
        """Return the numbers of the inputs that a copy recodes first."""
        if not choice.mixes:
            return ()
        return tuple(np.flatnonzero(~self.is_moved[start:end]).tolist())


def draft_groups(
    files: Files,
    reasons: ReasonCodes,
    group_of_file: Integers,
    ranks: Integers,
    policy: CompactionPolicy,
    *,
    sorts: bool = False,
) -> Drafts:
    """Work out method, forecast and cost of every group; inputs are in the order of `ranks`."""
    inside = np.flatnonzero(group_of_file >= 0)
    positions = inside[np.lexsort((ranks[inside], group_of_file[inside]))]
    group = group_of_file[positions]
    count = int(group.max(initial=-1)) + 1
    moved = find_moved(files, group_of_file)
    live = sum_by_owner(files.live_bytes[positions], group, count)
    counts = expected_file_counts(live, policy)
    facts = read_facts(files, group_of_file, moved, counts, crumb_bytes=policy.crumb_bytes)
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
    """Say of each input whether its row groups are moved: in a copy all, unless it mixes."""
    is_copy = np.array([choice.method == "copy" for choice in methods], np.bool_)
    mixes = np.array([choice.mixes for choice in methods], np.bool_)
    return is_copy[group] & (moved | ~mixes[group])


def _targets(
    live: Integers, expected: Integers, outputs: Integers, policy: CompactionPolicy
) -> Integers:
    """Return the size that outputs aim for: several are even, one takes all there may be."""
    even = -(-expected // np.maximum(outputs, 1))
    return np.where(outputs > 1, even, np.maximum(live, policy.target_file_bytes))


def _reasons(
    codes: ReasonCodes, group: Integers, count: int, policy: CompactionPolicy
) -> Iterator[str]:
    """Yield a sentence for each group that counts its files by reason."""
    words = {
        Reason.WORN: f"with more than {policy.deleted_row_ratio:.0%} of rows deleted",
        Reason.OVERSIZED: f"above {format_bytes(policy.oversized_file_bytes)}",
        Reason.SMALL_ROW_GROUPS: "with row groups far below a healthy size",
        Reason.SMALL: f"below {format_bytes(policy.small_file_bytes)}",
        Reason.UNORDERED: "never put in order",
        Reason.OVERLAPPING: "where too many lie over one another",
        Reason.ASKED_FOR: "in order already, but asked for",
    }
    counts = {
        reason: np.bincount(group[codes == code_of(reason)], minlength=count).tolist()
        for reason in CHOSEN
    }
    for number in range(count):
        yield ", ".join(
            f"{format_count(counts[reason][number], 'file')} {words[reason]}"
            for reason in words
            if counts[reason][number]
        )


def split_at_caps(drafts: Drafts, policy: CompactionPolicy) -> tuple[Drafts, Drafts]:
    """Return the groups of this run, largest first, and those for later ones.

    Where there is a cap, groups that take most files away for the bytes they cost come first; one
    that does not fit any more gives way to smaller ones.
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
