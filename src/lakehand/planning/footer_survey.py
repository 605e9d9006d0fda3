"""Facts from footers, in the order of the table of files.

A survey (`model.survey`) has one row per file, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.file_columns import SURVEY_SCHEMA
from lakehand.planning.policy import TINY_GROUP_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Integers = NDArray[np.int64]

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


def align_survey(survey: pa.Table | None, paths: pa.ChunkedArray) -> Surveyed:
    """Reorder the rows of `survey` to the order of `paths`; unknown paths are ignored."""
    table = (SURVEY_SCHEMA.empty_table() if survey is None else survey).combine_chunks()
    found = pc.index_in(paths, table["path"])
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    files = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    aligned = table.take(found.take(pa.array(files)))
    count = len(paths)
    row_groups = _row_groups(aligned, files)
    return Surveyed(
        is_surveyed=_scatter(np.ones(len(files), np.bool_), files, count, default=False),
        rows=_scatter(_numbers(aligned["rows"]), files, count, default=0),
        data_bytes=sum_by_owner(row_groups.bytes, row_groups.owner, count),
        row_group_counts=np.maximum(np.bincount(row_groups.owner, minlength=count), 1),
        copy_class=_scatter(_classes(aligned["copy_class"]), files, count, default=-1),
        refusal=table["refusal"].take(found).combine_chunks(),
        joins_recoded=_scatter(_flags(aligned["joins_recoded"]), files, count, default=False),
        calendar=_scatter(_classes(aligned["calendar"]), files, count, default=-1),
        may_have_old_dates=_scatter(
            _flags(aligned["may_have_old_dates"]), files, count, default=False
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
