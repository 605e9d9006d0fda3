"""The compaction planner: selects and groups files."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.reports import Forecast, Remaining
from lakehand.planning.drafts import Drafts, are_tiny, copy_affinity, draft_groups, split_at_caps
from lakehand.planning.footer_survey import (
    find_candidates,
    locate_survey,
    read_files,
    sum_by_owner,
)
from lakehand.planning.plan import Plan, PlannedGroup, format_partition
from lakehand.planning.policy import CHOSEN, LEFT, Reason, code_of, count_reasons, reason_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import Strategy
    from lakehand.planning.footer_survey import Candidates, Files, Flags, Integers, Rows
    from lakehand.planning.policy import CompactionPolicy, ReasonCodes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CutGroups:
    """Groups that each fit into a run."""

    #: The group of every file; -1 for files in none.
    group_of_file: Integers
    #: Files that were in a group, but exceed the limits of any run.
    is_above: Flags


def cut_to_caps(
    files: Files,
    group_of_file: Integers,
    policy: CompactionPolicy,
    *,
    must: Flags,
    only_whole: Flags | None = None,
    keeps_neighbours: bool = False,
) -> CutGroups:
    """Split groups that exceed a limit of `policy`.

    `must` marks files that are worth rewriting alone, `only_whole` those that are worth it only in
    their whole group.
    """
    bytes_cap = policy.max_bytes_per_run or np.iinfo(np.int64).max
    files_cap = policy.max_files_per_run or len(files) + 1
    inside = np.flatnonzero(group_of_file >= 0)
    group = group_of_file[inside]
    count = int(group.max(initial=-1)) + 1
    too_large = sum_by_owner(files.bytes[inside], group, count) > bytes_cap
    too_large |= np.bincount(group, minlength=count) > files_cap
    cut = inside[too_large[group]]
    fitting = cut[files.bytes[cut] <= bytes_cap]
    if only_whole is not None:
        fitting = fitting[~only_whole[fitting]]
    fitting = fitting[np.argsort(group_of_file[fitting], kind="stable")]
    fit = next_fit if keeps_neighbours else first_fit_decreasing
    pieces = fit(files.bytes[fitting], group_of_file[fitting], capacity=bytes_cap)
    pieces = _at_most(pieces, files_cap)
    kept = _worthwhile(pieces, must[fitting])
    found = group_of_file.copy()
    found[cut] = -1
    found[fitting[kept]] = count + pieces[kept]
    is_above = np.zeros(len(files), np.bool_)
    is_above[cut] = found[cut] < 0
    return CutGroups(group_of_file=_renumbered(found), is_above=is_above)


def _at_most(pieces: Integers, most: int) -> Integers:
    """Split pieces of more than `most` files."""
    order = np.argsort(pieces, kind="stable")
    ordered = pieces[order]
    rank_in_piece = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    divided = np.empty(len(pieces), np.int64)
    divided[order] = ordered * (len(pieces) + 1) + rank_in_piece // most
    return divided


def _worthwhile(pieces: Integers, must: Flags) -> Flags:
    """Return for each file whether its piece is more than one file that needs no rewrite."""
    if not len(pieces):
        return np.zeros(0, np.bool_)
    _, numbers = np.unique(pieces, return_inverse=True)
    counts = np.bincount(numbers)
    has_must = np.bincount(numbers, weights=must) > 0
    worthwhile: Flags = ((counts > 1) | has_must)[numbers]
    return worthwhile


def _renumbered(groups: Integers) -> Integers:
    """Return the same groups, renumbered without gaps."""
    numbers = np.full(len(groups), -1, np.int64)
    inside = groups >= 0
    numbers[inside] = np.unique(groups[inside], return_inverse=True)[1]
    return numbers


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Items:
    """What is to be packed: one entry per item."""

    sizes: Integers
    #: Expected size after the rewrite: decides whether a bin is too small.
    expected: Integers
    #: Items of different partitions never share a bin.
    partition: Integers
    #: Items of different affinity share a bin only if it would be too small otherwise.
    affinity: Integers


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Capacity of bins."""

    capacity: int
    #: A smaller bin is merged with others ...
    small_bytes: float
    #: ... up to this size.
    fullest: int


def pack(items: Items, strategy: Strategy, limits: Limits) -> Integers:
    """Return the bin of each item; only an item that is too large itself exceeds the capacity."""
    bins = _number_by_strategy(items, strategy, limits.capacity)
    sizes = sum_by_owner(items.expected, bins, len(bins))
    is_used = np.bincount(bins, minlength=len(bins)) > 0
    small = np.flatnonzero(is_used & (sizes < limits.small_bytes))
    partition = np.zeros(len(bins), np.int64)
    partition[bins] = items.partition
    merged = first_fit_decreasing(sizes[small], partition[small], capacity=limits.fullest)
    numbers = np.arange(len(bins))
    numbers[small] = small[_first_of_each(merged)]
    return numbers[bins]


def _first_of_each(numbers: Integers) -> Integers:
    """Replace every number by the position of its first occurrence."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse]


def _number_by_strategy(items: Items, strategy: Strategy, capacity: int) -> Integers:
    segment = items.partition * (items.affinity.max(initial=0) + 1) + items.affinity
    if strategy == "bin-packing":
        return first_fit_decreasing(items.sizes, segment, capacity=capacity)
    order = (
        np.lexsort((items.sizes, segment))
        if strategy == "sort-by-size"
        else np.argsort(segment, kind="stable")
    )
    bins = np.empty(len(order), np.int64)
    bins[order] = next_fit(items.sizes[order], segment[order], capacity=capacity)
    return bins


def next_fit(sizes: Integers, segments: Integers, *, capacity: int) -> Integers:
    """Fill one bin after the other in the given order; a bin ends at the end of its segment.

    >>> next_fit(np.array([40, 40, 40, 10]), np.array([0, 0, 0, 0]), capacity=100)
    array([0, 0, 1, 1])
    """
    count = len(sizes)
    before = np.concatenate(([0], np.cumsum(sizes)))
    # No limit is the greatest integer, to which nothing can be added.
    capacity = min(capacity, int(before[-1]))
    last_of_segment = np.searchsorted(segments, segments, side="right")
    fitting = np.searchsorted(before, before[:-1] + capacity, side="right") - 1
    # An item beyond the capacity gets its own bin.
    ends = np.maximum(np.minimum(fitting, last_of_segment), np.arange(count) + 1)
    starts = np.zeros(count, np.int64)
    starts[_chain(ends)] = 1
    bins: Integers = np.cumsum(starts) - 1
    return bins


def _chain(ends: Integers) -> list[int]:
    """Return where bins start: each at the end of the previous one."""
    starts, position = [], 0
    while position < len(ends):
        starts.append(position)
        position = int(ends[position])
    return starts


def first_fit_decreasing(sizes: Integers, segments: Integers, *, capacity: int) -> Integers:
    """Put each item, the largest first, into the first bin of its segment with enough space.

    >>> first_fit_decreasing(np.array([30, 80, 70, 15]), np.zeros(4, np.int64), capacity=100)
    array([1, 0, 1, 0])
    """
    count = len(sizes)
    order = np.lexsort((np.arange(count), -sizes, segments))
    first = np.flatnonzero(np.diff(segments[order], prepend=-1))
    bounds = [*first.tolist(), count]
    bins = np.empty(count, np.int64)
    bins[order] = _fill_bins((-sizes[order]).tolist(), bounds, capacity)
    return bins


def _fill_bins(negated: list[int], bounds: Sequence[int], capacity: int) -> list[int]:
    """Fill one bin at a time, which is equivalent to first-fit without searching bins.

    `negated` ascends within the segments given by `bounds`. Every item is taken once; taken items
    are skipped by pointers with path compression, so the work is O(n log n).
    """
    bins = [0] * len(negated)
    following = list(range(len(negated) + 1))
    number = 0
    for first, end in pairwise(bounds):
        while (item := _next_free(following, first)) < end:
            room = capacity
            while item < end:
                # The first item of a bin is taken whatever its size.
                if -negated[item] <= room or room == capacity:
                    room += negated[item]
                    bins[item] = number
                    following[item] = item + 1
                    item = _next_free(following, item + 1)
                else:
                    item = _next_free(following, bisect_left(negated, -room, item, end))
            number += 1
    return bins


def _next_free(following: list[int], item: int) -> int:
    while following[item] != item:
        following[item] = following[following[item]]
        item = following[item]
    return item


#: Number of files too small to be copied whose footers are read, to estimate the share of footers.
_SAMPLED_FILES = 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Planning:
    """A plan, and the reason of every file of the table, in the order of its files."""

    plan: Plan
    reasons: pa.DictionaryArray


def plan_compaction(
    snapshot: Snapshot,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    *,
    survey: pa.Table | None = None,
    order_keys: pa.Table | None = None,
    exclusions: Mapping[Reason, Flags] | None = None,
    sorts: bool = False,
) -> Planning:
    """Plan which files of `snapshot` are rewritten, in which groups, how, and the expected result.

    Only files with equal `partition_keys` are combined. `survey` adds facts from footers (see
    `surveyed`). If `order_keys` has the sort position of each file, only neighbours are combined,
    whatever the strategy. `exclusions` has a mask for each reason to skip files. `sorts` sorts the
    rows of every group.
    """
    in_force = policy if order_keys is None else replace(policy, strategy="greedy")
    located = locate_survey(survey, snapshot.files)
    reasons, drafts = np.zeros(snapshot.file_count, np.int8), []
    for rows in _portions(partition_keys, order_keys):
        files = read_files(snapshot.files, partition_keys, policy, located, rows=rows)
        masks = {reason: mask[rows] for reason, mask in (exclusions or {}).items()}
        candidates = find_candidates(files, policy, exclusions=masks)
        cut = cut_to_caps(
            files,
            _groups(candidates, in_force),
            in_force,
            must=candidates.must,
            keeps_neighbours=order_keys is not None,
        )
        drafted = draft_groups(files, candidates.reasons, cut.group_of_file, in_force, sorts=sorts)
        reasons[rows] = _reasons(candidates, drafted, cut)
        drafts.append(replace(drafted, positions=rows[drafted.positions]))
    return plan_drafts(snapshot, Drafts.concatenated(drafts), reasons, in_force)


#: More files than this are planned in portions, which limits memory to that of one.
_PORTION_FILES = 1_000_000


def _portions(partition_keys: pa.Array, order_keys: pa.Table | None) -> Iterator[Rows]:
    """Yield the indexes of all files: partition after partition, each in the order of its keys.

    Few files are one portion. Only a partition that is larger than a portion is divided.
    """
    count = len(partition_keys)
    order = np.arange(count, dtype=np.int32) if order_keys is None else _sorted(order_keys)
    if count <= _PORTION_FILES:
        yield order
        return
    keys = pc.dictionary_encode(partition_keys, null_encoding="encode").indices.to_numpy()[order]
    order = order[np.argsort(keys, kind="stable")]
    ends = np.cumsum(np.bincount(keys))
    del keys
    start = 0
    while start < count:
        fitting = np.searchsorted(ends, start + _PORTION_FILES, side="right")
        whole = int(ends[fitting - 1]) if fitting else 0
        end = whole if whole > start else min(count, start + _PORTION_FILES)
        yield order[start:end]
        start = end


def _sorted(order_keys: pa.Table) -> Rows:
    keys = [(name, "ascending") for name in order_keys.column_names]
    order: Rows = pc.sort_indices(order_keys, sort_keys=keys).to_numpy().astype(np.int32)
    return order


def plan_drafts(
    snapshot: Snapshot,
    drafts: Drafts,
    reasons: ReasonCodes,
    policy: CompactionPolicy,
) -> Planning:
    """Make a plan of the groups within the limits of a run; the others are left for later."""
    kept, later = split_at_caps(drafts, policy)
    reasons[later.positions] = code_of(Reason.LATER_RUN)
    plan = Plan(
        table=snapshot.table,
        table_id=snapshot.table_id,
        version=snapshot.version,
        policy=policy,
        groups=_named_groups(kept, snapshot.files),
        chosen=count_reasons(reasons, CHOSEN),
        left=count_reasons(reasons, LEFT),
        remaining=Remaining(
            groups=len(later), files=later.file_count, bytes=int(later.input_bytes.sum())
        ),
        forecast=_forecast(snapshot, kept),
    )
    return Planning(plan=plan, reasons=reason_column(reasons))


def paths_to_survey(
    snapshot: Snapshot,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    *,
    limit: int,
    exclusions: Mapping[Reason, Flags] | None = None,
    with_healthy: bool = False,
) -> list[str]:
    """Return the files whose footers matter most: candidates, the largest first, at most `limit`.

    Files that are too small for a reasonable row group are re-encoded whatever their footers are; a
    few of them represent all. `with_healthy` adds files of sufficient size, to find tiny row
    groups.
    """
    found, nothing = [], locate_survey(None, snapshot.files)
    for rows in _portions(partition_keys, None):
        files = read_files(snapshot.files, partition_keys, policy, nothing, rows=rows)
        masks = {reason: mask[rows] for reason, mask in (exclusions or {}).items()}
        candidates = find_candidates(files, policy, exclusions=masks)
        healthy = candidates.reasons == code_of(Reason.LARGE_ENOUGH)
        is_wanted = candidates.chosen | healthy if with_healthy else candidates.chosen
        values = (rows, files.bytes, candidates.chosen, are_tiny(files))
        found.append(_most_telling([value[is_wanted] for value in values], limit))
    rows = _most_telling(list(map(np.concatenate, zip(*found, strict=True))), limit)[0]
    paths: list[str] = snapshot.files["path"].take(pa.array(rows)).to_pylist()
    return paths


def _most_telling(values: list[NDArray[Any]], limit: int) -> list[NDArray[Any]]:
    """Return the same of the files whose footers are read.

    `values` are the index and the size of every file, whether it is chosen and whether it is tiny.
    """
    _, sizes, is_chosen, is_tiny = values
    order = np.lexsort((-sizes, ~is_chosen))
    tiny = order[is_tiny[order]]
    sample = tiny[:: max(1, len(tiny) // _SAMPLED_FILES)][:_SAMPLED_FILES]
    kept = np.concatenate((order[~is_tiny[order]], sample))[:limit]
    return [value[kept] for value in values]


def _groups(candidates: Candidates, policy: CompactionPolicy) -> Integers:
    """Return the group of every file; -1 for files in none."""
    files, chosen = candidates.files, np.flatnonzero(candidates.chosen)
    items = Items(
        sizes=files.live_bytes[chosen],
        expected=files.expected_bytes[chosen],
        partition=files.partition[chosen],
        affinity=copy_affinity(files)[chosen],
    )
    limits = Limits(
        capacity=policy.target_file_bytes,
        small_bytes=policy.nearly_small_bytes,
        fullest=policy.fullest_group_bytes,
    )
    bins = pack(items, policy.strategy, limits)
    sizes = np.bincount(bins, minlength=len(chosen))
    has_must = np.bincount(bins, weights=candidates.must[chosen], minlength=len(chosen)) > 0
    # A single file without a reason would be rewritten into itself.
    worthwhile = (sizes > 1) | has_must
    numbers = np.cumsum(worthwhile & (sizes > 0)) - 1
    group_of_file = np.full(len(files), -1, np.int64)
    group_of_file[chosen] = np.where(worthwhile[bins], numbers[bins], -1)
    return group_of_file


def _reasons(candidates: Candidates, drafts: Drafts, cut: CutGroups) -> ReasonCodes:
    """Return the reason of every file, now that the groups are known."""
    reasons = candidates.reasons.copy()
    alone = candidates.chosen.copy()
    alone[drafts.positions] = False
    reasons[alone] = code_of(Reason.SINGLE_FILE)
    reasons[cut.is_above] = code_of(Reason.ABOVE_CAP)
    return reasons


def _named_groups(kept: Drafts, files: pa.Table) -> tuple[PlannedGroup, ...]:
    """Turn the groups into values with paths and partition."""
    first = files["partition"].take(pa.array(kept.positions[kept.bounds[:-1]])).to_pylist()
    return kept.to_groups(files["path"], list(map(format_partition, first)))


def _forecast(snapshot: Snapshot, kept: Drafts) -> Forecast:
    read, written = int(kept.input_bytes.sum()), int(kept.expected_bytes.sum())
    count, total = snapshot.file_count, snapshot.total_bytes
    return Forecast(
        files_before=count,
        files_after=count - kept.file_count + int(kept.expected_files.sum()),
        bytes_before=total,
        bytes_after=total - read + written,
        bytes_read=read,
        bytes_written=written,
        task_seconds=float(kept.task_seconds.sum()),
    )
