"""Selects files worth rewriting, by table metadata and footers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from lakehand.planning.footer_survey import align_survey, sum_by_owner
from lakehand.planning.plan import recoded_bytes
from lakehand.planning.policy import Reason, code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakehand.planning.footer_survey import Flags, Integers, Surveyed
    from lakehand.planning.policy import CompactionPolicy, ReasonCodes

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
    files: pa.Table, partition_keys: pa.Array, policy: CompactionPolicy, survey: pa.Table | None
) -> Files:
    """Read the deciding columns from the table of files and from the survey, if there is one."""
    surveyed = align_survey(survey, files["path"])
    sizes = files["bytes"].to_numpy()
    deleted = pc.fill_null(files["deleted_rows"], 0).to_numpy()
    stated = pc.fill_null(files["rows"], -1).to_numpy()
    rows = np.where((stated < 0) & surveyed.is_surveyed, surveyed.rows, stated)
    share = np.divide(deleted, rows, out=np.zeros(len(rows)), where=rows > 0).clip(0.0, 1.0)
    # Footers are rewritten, and small.
    data_bytes = np.where(surveyed.is_surveyed, surveyed.data_bytes, _guess_data(sizes, surveyed))
    live_bytes = np.where(rows == 0, 0, np.ceil(data_bytes * (1 - share))).astype(np.int64)
    return Files(
        bytes=sizes,
        live_bytes=live_bytes,
        expected_bytes=recoded_bytes(live_bytes, data_bytes / surveyed.row_group_counts, policy),
        deleted_share=share,
        has_deleted_rows=deleted > 0,
        rows=rows,
        partition=_by_calendar(_numbered(partition_keys), surveyed),
        survey=surveyed,
    )


def _guess_data(sizes: Integers, surveyed: Surveyed) -> Integers:
    """Estimate how many bytes of each file are rows, by the files whose footers were read.

    A file of a few kilobytes is half footer, and there may be too many to read all footers.
    """
    known = np.flatnonzero(surveyed.is_surveyed & (surveyed.row_group_counts == 1))
    if not len(known):
        return sizes
    overhead = int(np.median(sizes[known] - surveyed.data_bytes[known]))
    return np.maximum(sizes - overhead, sizes // _MIN_DATA_PART)


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
