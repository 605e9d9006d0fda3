"""Selects the files to cluster.

Files that were clustered together are a unit: they hardly overlap. New files overlap everything, so
they are clustered into a separate unit first, which costs only their own bytes. Overlapping
units are merged if that at least doubles what is written anyway. So there are never more than a few
units, a row is rewritten a few times and not with every run, and a second run finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.planning.compaction import CutGroups, Planning, cut_to_caps, plan_drafts
from lakehand.planning.drafts import draft_groups
from lakehand.planning.file_bounds import Extent, extents_of
from lakehand.planning.footer_survey import Files, read_files, sum_by_owner
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.policy import CHOSEN, CompactionPolicy, Reason, code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.footer_survey import Flags, Integers
    from lakehand.planning.policy import ReasonCodes

#: A query may read one file of an old unit and one of a new one, and no more.
_HEALTHY_DEPTH = 2
#: From this depth on, units are merged even without new files.
_TOO_DEEP = 8
#: New files of a partition that are compared with the others one by one.
_MAX_BOXES = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusteringRequest:
    """The requested clustering."""

    #: Clustering columns.
    columns: tuple[str, ...]
    #: All files, whatever their state.
    full: bool = False
    #: Fewer new files are not worth a run if they are small.
    min_new_files: int = 1


def plan_clustering(
    snapshot: Snapshot,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    request: ClusteringRequest,
    *,
    marks: pa.Table,
    exclusions: Mapping[Reason, Flags] | None = None,
) -> Planning:
    """Plan which files of `snapshot` are clustered: in each partition all of them together.

    `marks` has for each file the `unit` it was clustered with, and whether that has the requested
    order (`is_asked`). `snapshot` has the bounds of the columns. `exclusions` has a mask for each
    reason to skip files.
    """
    files = read_files(snapshot.files, partition_keys, policy)
    units = _units(marks)
    if request.full:
        reasons = np.where(units.is_asked, code_of(Reason.ASKED_FOR), code_of(Reason.UNORDERED))
    else:
        extents = extents_of(snapshot.files, request.columns)
        reasons = _judge(files, units, extents, policy, request)
    for reason, mask in reversed(list((exclusions or {}).items())):
        reasons = np.where(mask, code_of(reason), reasons)
    reasons = reasons.astype(np.int8)
    cut = _cut(files, reasons, policy)
    drafts = draft_groups(files, reasons, cut.group_of_file, policy, sorts=True)
    reasons[cut.is_above] = code_of(Reason.ABOVE_CAP)
    return plan_drafts(snapshot, drafts, reasons, policy)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Units:
    """The files with which each file was clustered."""

    #: -1 for a file that was never clustered.
    number: Integers
    is_asked: Flags

    @property
    def is_new(self) -> Flags:
        new: Flags = self.number < 0
        return new


def _units(marks: pa.Table) -> _Units:
    encoded = marks["unit"].combine_chunks().dictionary_encode()
    asked = marks["is_asked"].combine_chunks().cast(pa.uint8())
    return _Units(
        number=encoded.indices.fill_null(-1).to_numpy().astype(np.int64),
        is_asked=asked.to_numpy().astype(np.bool_),
    )


def _judge(
    files: Files,
    units: _Units,
    extents: Sequence[Extent],
    policy: CompactionPolicy,
    request: ClusteringRequest,
) -> ReasonCodes:
    """Return the reason of each file, for rewriting it or not."""
    small = files.bytes < policy.small_file_bytes
    asked = units.is_asked
    new = units.is_new & ~_is_too_little(files, units.is_new & small, units.is_new, request)
    worn = (files.deleted_share > policy.deleted_row_ratio) & (asked | units.is_new)
    fragments = (_unit_means(files, units) < policy.small_file_bytes) & asked
    fragments &= _counted(files.partition, fragments)[files.partition] >= policy.min_files
    starting = new | worn | fragments
    merged = _merged(files, units, extents, starting)
    verdicts = {
        Reason.WORN: worn,
        Reason.UNORDERED: new,
        Reason.SMALL: fragments,
        Reason.OVERLAPPING: merged,
        Reason.OTHER_ORDER: ~asked & ~units.is_new,
        Reason.BELOW_MINIMUM_FILES: units.is_new,
    }
    codes = [code_of(reason) for reason in verdicts]
    default = code_of(Reason.IN_ORDER)
    return np.select(list(verdicts.values()), codes, default).astype(np.int8)


def _unit_means(files: Files, units: _Units) -> NDArray[np.float64]:
    """Return for each file the average size of the files in its unit.

    File boundaries follow the curve, so a single file may be small, and would be small again.
    """
    numbers = units.number + 1
    sizes = np.bincount(numbers, weights=files.bytes) / np.maximum(np.bincount(numbers), 1)
    means: NDArray[np.float64] = np.where(units.is_new, files.bytes, sizes[numbers])
    return means


def _is_too_little(files: Files, small: Flags, new: Flags, request: ClusteringRequest) -> Flags:
    """Return for each file whether its partition has few new files, all of them small."""
    counts = _counted(files.partition, new)
    is_small = counts == _counted(files.partition, small)
    too_little: Flags = (is_small & (counts < request.min_new_files))[files.partition]
    return too_little


def _counted(partition: Integers, chosen: Flags) -> Integers:
    return np.bincount(partition[chosen], minlength=int(partition.max(initial=0)) + 1)


def _merged(files: Files, units: _Units, extents: Sequence[Extent], starting: Flags) -> Flags:
    """Select files of units that are worth merging with what is rewritten anyway."""
    merged = np.zeros(len(files), np.bool_)
    old = units.is_asked & ~starting
    partitions = int(files.partition.max(initial=0)) + 1
    rewritten = sum_by_owner(files.bytes * starting, files.partition, partitions)
    started = np.flatnonzero(starting & (_counted(files.partition, old) > 0)[files.partition])
    for new in _by_partition(files.partition, started):
        partition = files.partition[new[0]]
        here = np.flatnonzero(old & (files.partition == partition))
        members = here[_lie_over(extents, here, new)]
        _merge(merged, _by_unit(files, units, members), written=int(rewritten[partition]))
    idle = old & (rewritten == 0)[files.partition]
    for members in _by_partition(files.partition, np.flatnonzero(_too_deep(files, extents, idle))):
        pieces = _by_unit(files, units, members)
        # Merging the others must help: what remains is one unit that overlaps the largest.
        if len(pieces) > _HEALTHY_DEPTH:
            _merge(merged, pieces, written=sum(size for size, _ in pieces[:-1]))
    return merged


def _merge(merged: Flags, pieces: Sequence[tuple[int, Integers]], *, written: int) -> None:
    """Mark the files of units, the smallest first, while each is no larger than the others."""
    for size, piece in pieces:
        if size > written:
            break
        merged[piece] = True
        written += size


def _lie_over(extents: Sequence[Extent], files: Integers, others: Integers) -> Flags:
    """Return for each of `files` whether it overlaps one of `others` in all columns."""
    boxes = [(each.low[others], each.high[others]) for each in extents]
    if len(others) > _MAX_BOXES:
        # One bounding box around all: slightly too large, seldom by much.
        boxes = [(low.min(keepdims=True), high.max(keepdims=True)) for low, high in boxes]
    found = np.zeros(len(files), np.bool_)
    for number in range(len(boxes[0][0])):
        shares = np.ones(len(files), np.bool_)
        for each, (low, high) in zip(extents, boxes, strict=True):
            shares &= (each.low[files] <= high[number]) & (each.high[files] >= low[number])
        found |= shares
    return found


def _too_deep(files: Files, extents: Sequence[Extent], chosen: Flags) -> Flags:
    """Return which of the chosen files are too deep; files of other partitions do not count."""
    if not chosen.any():
        return chosen
    rank_count = int(files.partition.max()) + 1
    apart = Extent(low=files.partition, high=files.partition, rank_count=rank_count)
    depth = overlap_depth([*extents, apart] if rank_count > 1 else extents).by_file
    deep: Flags = chosen & (depth > _TOO_DEEP)
    return deep


def _by_partition(partition: Integers, positions: Integers) -> Iterator[Integers]:
    """Yield the `positions` of each partition."""
    positions = positions[np.argsort(partition[positions], kind="stable")]
    cuts = np.flatnonzero(np.diff(partition[positions])) + 1
    return (members for members in np.split(positions, cuts) if len(members))


def _by_unit(files: Files, units: _Units, members: Integers) -> list[tuple[int, Integers]]:
    """Return the bytes and the files of each unit among `members`, the smallest first."""
    found, numbers = np.unique(units.number[members], return_inverse=True)
    sizes = sum_by_owner(files.bytes[members], numbers, len(found))
    order = np.argsort(sizes, kind="stable").tolist()
    return [(int(sizes[number]), members[numbers == number]) for number in order]


def _cut(files: Files, reasons: ReasonCodes, policy: CompactionPolicy) -> CutGroups:
    """Combine all chosen files of a partition, within the limits of a run.

    Files that are merged only because they overlap are not added to a group that is split: parts of
    it would overlap as before, and be rewritten by every run.
    """

    def are(*wanted: Reason) -> Flags:
        return np.isin(reasons, [code_of(reason) for reason in wanted])

    return cut_to_caps(
        files,
        _one_group_a_partition(files, are(*CHOSEN)),
        policy,
        must=are(Reason.UNORDERED, Reason.WORN, Reason.ASKED_FOR),
        only_whole=are(Reason.OVERLAPPING),
        keeps_neighbours=True,
    )


def _one_group_a_partition(files: Files, chosen: Flags) -> Integers:
    groups = np.full(len(files), -1, np.int64)
    groups[chosen] = np.unique(files.partition[chosen], return_inverse=True)[1]
    return groups
