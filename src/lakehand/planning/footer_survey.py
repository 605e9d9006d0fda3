"""The files of a table with facts from their footers, and which are worth rewriting.

A survey (`SURVEY_SCHEMA`) has one row per file, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.file_columns import SURVEY_SCHEMA
from lakehand.planning.plan import recoded_bytes
from lakehand.planning.policy import TINY_GROUP_ROWS, CompactionPolicy, Reason, code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.planning.policy import ReasonCodes


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Integers = NDArray[np.int64]
    #: Indexes of files: half of the memory of `Integers`, where there are millions.
    Rows = NDArray[np.int32]

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowGroups:
    """All row groups of the surveyed files, concatenated."""

    #: Index of the file in the table of files.
    owner: Integers
    bytes: Integers
    rows: Integers

    def are_tiny_groups(self, tiny_group_bytes: float) -> Flags:
        return (self.bytes < tiny_group_bytes) & (self.rows < TINY_GROUP_ROWS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Surveyed:
    """One entry per file of the table."""

    is_surveyed: Flags
    #: Rows in the footer; 0 if it was not read.
    rows: Integers
    #: Bytes of all row groups, without indexes and footer.
    data_bytes: Integers
    #: Row groups of the file; at least one, and one if the footer was not read.
    row_group_counts: Integers
    #: Number of the copy class; -1 for files that must not be copied or were not surveyed.
    copy_class: Integers
    #: Why a file must not be copied; null if it may, or if not known.
    refusal: pa.Array
    #: Whether re-encoded rows may share an output file with copied row groups of this file.
    joins_recoded: Flags
    #: Number of the calendar of the file's dates; -1 if not surveyed.
    calendar: Integers
    #: Whether dates may be so old that the calendar makes a difference.
    may_have_old_dates: Flags
    row_groups: RowGroups


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LocatedSurvey:
    """A survey, and which file each of its rows describes."""

    table: pa.Table
    #: Indexes in the table of files, ascending.
    positions: Integers
    #: How many bytes of a file with one row group are no rows: the median.
    overhead: int


def locate_survey(survey: pa.Table | None, files: pa.Table) -> LocatedSurvey:
    """Find the files of `survey`; unknown paths are ignored."""
    table = (SURVEY_SCHEMA.empty_table() if survey is None else survey).combine_chunks()
    found = pc.index_in(files["path"], table["path"])
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    positions = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    table = table.take(found.take(pa.array(positions)))
    groups = _row_groups(table, np.arange(len(positions)))
    known = np.flatnonzero(np.bincount(groups.owner, minlength=len(positions)) == 1)
    sizes = files["bytes"].take(pa.array(positions[known])).to_numpy()
    # In the order of their owners, so each is in its place.
    data = sum_by_owner(groups.bytes, groups.owner, len(positions))[known]
    overhead = int(np.median(sizes - data)) if len(known) else 0
    return LocatedSurvey(table=table, positions=positions, overhead=overhead)


def align_survey(survey: LocatedSurvey, rows: Integers | Rows) -> Surveyed:
    """Return what `survey` says of each of the files with the indexes `rows`."""
    count = len(rows)
    place = np.searchsorted(survey.positions, rows)
    is_found = np.append(survey.positions, -1)[place] == rows
    files, table = np.flatnonzero(is_found), survey.table.take(pa.array(place[is_found]))
    row_groups = _row_groups(table, files)
    return Surveyed(
        is_surveyed=is_found,
        rows=_scatter(_numbers(table["rows"]), files, count, default=0),
        data_bytes=sum_by_owner(row_groups.bytes, row_groups.owner, count),
        row_group_counts=np.maximum(np.bincount(row_groups.owner, minlength=count), 1),
        copy_class=_scatter(_classes(table["copy_class"]), files, count, default=-1),
        refusal=survey.table["refusal"].combine_chunks().take(pa.array(place, mask=~is_found)),
        joins_recoded=_scatter(_flags(table["joins_recoded"]), files, count, default=False),
        calendar=_scatter(_classes(table["calendar"]), files, count, default=-1),
        may_have_old_dates=_scatter(
            _flags(table["may_have_old_dates"]), files, count, default=False
        ),
        row_groups=row_groups,
    )


def sum_by_owner(values: Integers, owner: Integers, count: int) -> Integers:
    """Sum `values` for each of `count` owners, exactly."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, owner, values)
    return sums


def medians_by_owner(values: Integers, owner: Integers, count: int) -> Integers:
    """Return the lower median of the values of each owner; 0 if it has none."""
    order = np.lexsort((values, owner))
    counts = np.bincount(owner, minlength=count)
    middle = np.cumsum(counts) - counts + np.maximum(counts - 1, 0) // 2
    medians = np.zeros(count, np.int64)
    some = counts > 0
    medians[some] = values[order][middle[some]]
    return medians


def _row_groups(aligned: pa.Table, files: Integers) -> RowGroups:
    counts = _numbers(pc.list_value_length(aligned["row_group_bytes"]))
    return RowGroups(
        owner=np.repeat(files, counts),
        bytes=_numbers(pc.list_flatten(aligned["row_group_bytes"])),
        rows=_numbers(pc.list_flatten(aligned["row_group_rows"])),
    )


def _classes(column: pa.ChunkedArray) -> Integers:
    encoded = pc.dictionary_encode(column).combine_chunks()
    return _numbers(encoded.indices, missing=-1)


def _numbers(column: pa.Array | pa.ChunkedArray, *, missing: int = 0) -> Integers:
    values: Integers = pc.fill_null(column, missing).to_numpy().astype(np.int64)
    return values


def _flags(column: pa.ChunkedArray) -> Flags:
    values: Flags = pc.fill_null(column, False).combine_chunks().to_numpy(zero_copy_only=False)  # noqa: FBT003
    return values


def _scatter(
    values: NDArray[Number], positions: Integers, count: int, *, default: float
) -> NDArray[Number]:
    scattered = np.full(count, default, values.dtype)
    scattered[positions] = values
    return scattered


# Files worth rewriting

#: A file has a bad layout if more than this fraction of its rows is in tiny row groups ...
_TINY_GROUP_ROW_RATIO = 0.1
#: ... and if there are enough of them for a rewrite to make a difference.
_MIN_TINY_GROUPS = 4
#: Of a file whose footer was not read, at least this fraction is assumed to be rows.
_MIN_DATA_PART = 8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Files:
    """The deciding columns as NumPy arrays: one entry per file."""

    bytes: Integers
    #: Size of a copy: the row groups, without the share of deleted rows.
    live_bytes: Integers
    #: Expected size after a rewrite.
    expected_bytes: Integers
    #: Fraction of deleted rows; 0 if the number of rows is not known.
    deleted_share: np.typing.NDArray[np.float64]
    has_deleted_rows: Flags
    #: Physical rows; -1 if not known.
    rows: Integers
    #: Files with equal numbers may be combined.
    partition: Integers
    survey: Surveyed

    def __len__(self) -> int:
        return len(self.bytes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidates:
    """The files to be packed, and a reason for every file of the table."""

    files: Files
    reasons: ReasonCodes
    #: Rewritten even if alone.
    must: Flags
    #: To be packed: `must`, and the small files of partitions with enough of them.
    chosen: Flags


def read_files(
    files: pa.Table,
    partition_keys: pa.Array,
    policy: CompactionPolicy,
    survey: LocatedSurvey | None = None,
    *,
    rows: Rows | None = None,
) -> Files:
    """Read the deciding columns of the files with the indexes `rows`, by default of all."""
    survey = survey or locate_survey(None, files)
    surveyed = align_survey(survey, np.arange(len(files)) if rows is None else rows)
    chosen = files.select(["bytes", "deleted_rows", "rows"])
    if rows is not None:
        chosen, partition_keys = chosen.take(rows), partition_keys.take(rows)
    sizes = chosen["bytes"].to_numpy()
    deleted = pc.fill_null(chosen["deleted_rows"], 0).to_numpy()
    stated = pc.fill_null(chosen["rows"], -1).to_numpy()
    row_counts = np.where((stated < 0) & surveyed.is_surveyed, surveyed.rows, stated)
    share = np.divide(deleted, row_counts, out=np.zeros(len(sizes)), where=row_counts > 0)
    share = share.clip(0.0, 1.0)
    # Footers are rewritten, and small. A file of a few kilobytes is half footer, and there may be
    # too many to read all footers.
    guessed = np.maximum(sizes - survey.overhead, sizes // _MIN_DATA_PART)
    data_bytes = np.where(surveyed.is_surveyed, surveyed.data_bytes, guessed)
    live_bytes = np.where(row_counts == 0, 0, np.ceil(data_bytes * (1 - share))).astype(np.int64)
    return Files(
        bytes=sizes,
        live_bytes=live_bytes,
        expected_bytes=recoded_bytes(live_bytes, data_bytes / surveyed.row_group_counts, policy),
        deleted_share=share,
        has_deleted_rows=deleted > 0,
        rows=row_counts,
        partition=_by_calendar(_numbered(partition_keys), surveyed),
        survey=surveyed,
    )


def _numbered(keys: pa.Array) -> Integers:
    encoded = pc.dictionary_encode(keys, null_encoding="encode")
    numbers: Integers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _by_calendar(partition: Integers, surveyed: Surveyed) -> Integers:
    """Separate files of different calendars in every partition with dates that differ by it.

    A file has one calendar for all of its rows, so rows of two cannot be combined.
    """
    if not surveyed.may_have_old_dates.any():
        return partition
    matters = np.bincount(partition, weights=surveyed.may_have_old_dates)[partition] > 0
    calendar = np.where(matters, surveyed.calendar + 1, 0)
    pairs = partition * (calendar.max() + 1) + calendar
    numbers: Integers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def find_candidates(
    files: Files, policy: CompactionPolicy, *, exclusions: Mapping[Reason, Flags]
) -> Candidates:
    """Assign a reason to every file; of two reasons, the one that needs no other files wins.

    `exclusions` has a mask for each reason not to rewrite a file, whatever its state.
    """
    excluded = np.zeros(len(files), np.bool_)
    for mask in exclusions.values():
        excluded |= mask
    small = (files.bytes < policy.small_file_bytes) & ~excluded
    forcing = {
        Reason.WORN: (files.deleted_share > policy.deleted_row_ratio) & ~excluded,
        Reason.OVERSIZED: (files.bytes > policy.oversized_file_bytes) & ~excluded,
        Reason.SMALL_ROW_GROUPS: _has_tiny_groups(files.survey, policy) & ~excluded,
    }
    must = np.logical_or.reduce(list(forcing.values()))
    light = small | (must & (files.expected_bytes < policy.nearly_small_bytes))
    gated = small & ~_in_partitions_with(policy.min_files, light, files.partition)
    verdicts = {
        **exclusions,
        **forcing,
        Reason.BELOW_MINIMUM_FILES: gated,
        Reason.SMALL: small,
    }
    codes = [code_of(reason) for reason in verdicts]
    default = code_of(Reason.LARGE_ENOUGH)
    reasons = np.select(list(verdicts.values()), codes, default).astype(np.int8)
    return Candidates(files=files, reasons=reasons, must=must, chosen=must | (small & ~gated))


def _has_tiny_groups(survey: Surveyed, policy: CompactionPolicy) -> Flags:
    groups, count = survey.row_groups, len(survey.rows)
    is_tiny_group = groups.are_tiny_groups(policy.tiny_group_bytes)
    tiny_group_rows = sum_by_owner(groups.rows * is_tiny_group, groups.owner, count)
    tiny_groups = sum_by_owner(is_tiny_group.astype(np.int64), groups.owner, count)
    found: Flags = (tiny_group_rows > _TINY_GROUP_ROW_RATIO * survey.rows) & (
        tiny_groups >= _MIN_TINY_GROUPS
    )
    return found


def _in_partitions_with(minimum: int, light: Flags, partition: Integers) -> Flags:
    """Return for each file whether its partition has at least `minimum` small files."""
    if not len(partition):
        return np.zeros(0, np.bool_)
    enough: Flags = np.bincount(partition[light], minlength=int(partition.max()) + 1) >= minimum
    return enough[partition]
