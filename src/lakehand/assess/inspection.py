"""Key figures of a table, computed from its snapshot alone, vectorized."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.assess.health_score import Health, Measures, assess_health
from lakehand.errors import ValidationError
from lakehand.model.notebook_view import NotebookView
from lakehand.model.table_summary import UNKNOWN_ROWS
from lakehand.observe import reported
from lakehand.planning.file_bounds import Extent, extents_of, value_bounds
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.policy import automatic_min_files, small_file_ratio
from lakehand.planning.probes import ProbeSet, SkipRate, probes_of_bounds, skip_rate
from lakehand.sorting.ordering import orderable_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_summary import TableSummary
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnLayout:
    """Clustering of the files by one column."""

    #: Name of the column.
    column: str
    #: Average number of files that contain the middle of a file's range in this column, including
    #: itself.
    overlap_depth: float
    #: The maximum over all files.
    max_overlap_depth: int
    #: Fraction of the files that queries on this column alone skip; null if there are no bounds.
    skip_rate: float | None
    #: Files without bounds of the column: no query skips them.
    files_without_bounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Clustering of a table's files by columns, separately and together."""

    #: The requested columns.
    columns: tuple[str, ...]
    #: Average number of files that contain the middle of a file's ranges in all columns, including
    #: itself.
    overlap_depth: float
    #: The maximum over all files.
    max_overlap_depth: int
    #: Fraction of the files that min/max statistics skip, averaged over all probe queries.
    skip_rate: float
    #: Fraction of the bytes that they skip.
    skip_rate_bytes: float
    #: Number of probe queries.
    probe_count: int
    #: Each column separately.
    by_column: tuple[ColumnLayout, ...]


def measure_layout(snapshot: Snapshot, columns: Sequence[str]) -> Layout:
    """Measure how well files are clustered by `columns`, whose bounds `snapshot` has."""
    _check_ordered(snapshot, columns)
    files = snapshot.files
    extents = extents_of(files, columns)
    depth = overlap_depth(extents)
    probes = probes_of_bounds(files, columns)
    rate = skip_rate(files, probes)
    return Layout(
        columns=tuple(columns),
        overlap_depth=depth.average,
        max_overlap_depth=depth.maximum,
        skip_rate=rate.files,
        skip_rate_bytes=rate.bytes,
        probe_count=len(probes.probes),
        by_column=tuple(
            _column_layout(files, column, extent, _rate_alone(probes, rate, column))
            for column, extent in zip(columns, extents, strict=True)
        ),
    )


def _column_layout(
    files: pa.Table, column: str, extent: Extent, rate: float | None
) -> ColumnLayout:
    depth = overlap_depth([extent])
    bounds = value_bounds(files, column)
    unknown = np.from_dlpack(bounds.low.is_null().cast(pa.uint8())).astype(np.bool_)
    return ColumnLayout(
        column=column,
        overlap_depth=depth.average,
        max_overlap_depth=depth.maximum,
        skip_rate=rate,
        files_without_bounds=int(np.count_nonzero(unknown & ~bounds.is_empty)),
    )


def _rate_alone(probes: ProbeSet, rate: SkipRate, column: str) -> float | None:
    alone = [tuple(probe.ranges) == (column,) for probe in probes.probes]
    return float(rate.by_probe[alone].mean()) if any(alone) else None


def _check_ordered(snapshot: Snapshot, columns: Sequence[str]) -> None:
    ordered = orderable_columns(snapshot.schema)
    known = {name.lower() for name in ordered}
    for column in columns:
        if column.lower() not in known:
            raise ValidationError(
                f"cannot sort by {column!r}; sortable columns: {', '.join(ordered)}",
                field=column,
            )


#: Edges of the histogram as fractions of the target size; files below one half count as small.
_EDGES = (0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 1, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeRange:
    """Files with sizes in one range."""

    #: Smallest size in the range.
    from_bytes: int
    #: First size above the range; null: no upper limit.
    to_bytes: int | None
    #: Files in the range.
    file_count: int
    #: Total size of these files.
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection(NotebookView):
    """Key figures of a table at one version. Fields have the names of the JSON document."""

    #: URL of the table, without credentials.
    table: str
    #: Name of the table's format.
    format: str
    #: The inspected version.
    version: int
    #: When the version was committed.
    at: datetime
    #: Files of the version.
    file_count: int
    #: Total size of these files.
    total_bytes: int
    #: `total_bytes / file_count`, rounded down.
    average_file_bytes: int
    #: Visible rows; null if the row count of a file is not recorded.
    row_count: int | None
    #: Deleted rows that are still in the files.
    deleted_row_count: int
    #: Files below `small_file_bytes`.
    small_file_count: int
    #: A file below this size is small: a fraction of the target, see `small_file_ratio`.
    small_file_bytes: int
    #: Target size of rewritten files.
    target_file_bytes: int
    #: Files that compaction would remove: small files beyond those that their rows need.
    excess_file_count: int
    #: Files whose share of deleted rows is above the limit for a rewrite.
    files_with_deleted_rows: int
    #: Partitions with files; a table without partition columns is one partition.
    partition_count: int
    #: Partition columns.
    partition_columns: tuple[str, ...]
    #: Latest checkpoint; null if the table has none at or before this version.
    checkpoint_version: int | None
    #: Commits to replay after the checkpoint.
    commits_since_checkpoint: int
    #: Histogram of file sizes.
    sizes: tuple[SizeRange, ...]
    #: Health score, and its reasons.
    health: Health
    #: Clustering by the columns of `--by`; null if none was given.
    layout: Layout | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand inspect --json` prints."""
        document = asdict(self)
        document["at"] = self.at.isoformat()
        return document


@reported
def inspect_snapshot(
    snapshot: Snapshot, *, format_name: str, settings: Settings, by: Sequence[str] = ()
) -> Inspection:
    """Compute the key figures and the health of `snapshot`.

    `by` names columns whose clustering is measured; the snapshot has their bounds.
    """
    files, measures = snapshot.files, measure(snapshot, settings=settings)
    target_bytes: int = settings.target_file_bytes
    partitions = _partition_numbers(files["partition"])
    return Inspection(
        table=snapshot.table,
        format=format_name,
        version=snapshot.version,
        at=snapshot.at,
        file_count=measures.file_count,
        total_bytes=measures.total_bytes,
        average_file_bytes=measures.total_bytes // max(measures.file_count, 1),
        row_count=_visible_rows(measures),
        deleted_row_count=measures.deleted_rows,
        small_file_count=measures.small_file_count,
        small_file_bytes=measures.small_file_bytes,
        target_file_bytes=target_bytes,
        excess_file_count=measures.excess_file_count,
        files_with_deleted_rows=_rewritable_for_deletes(files, settings.deleted_row_ratio),
        partition_count=int(partitions.max()) + 1 if len(partitions) else 0,
        partition_columns=snapshot.partition_columns,
        checkpoint_version=snapshot.checkpoint_version,
        commits_since_checkpoint=measures.commits_since_checkpoint,
        sizes=_histogram(_sizes(files), target_bytes),
        health=assess_health(measures),
        layout=_layout(snapshot, by) if by else None,
    )


def _layout(snapshot: Snapshot, by: Sequence[str]) -> Layout:
    # A slow import, needed only for this.
    return measure_layout(snapshot, by)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFigures:
    """Numbers of all files of a version, as arrays of the same length."""

    sizes: np.ndarray
    #: Number of each file's partition, from 0.
    partitions: np.ndarray
    #: `UNKNOWN_ROWS` where they are not recorded.
    rows: np.ndarray
    deleted: np.ndarray
    #: Whether each file is too new for automatic runs; None: not known.
    is_new: np.ndarray | None = None

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot, settled_at: datetime | None = None) -> FileFigures:
        files = snapshot.files
        return cls(
            sizes=_sizes(files),
            partitions=_partition_numbers(files["partition"]),
            rows=_as_numpy(pc.fill_null(files["rows"], UNKNOWN_ROWS).combine_chunks()),
            deleted=_as_numpy(pc.fill_null(files["deleted_rows"], 0).combine_chunks()),
            is_new=None if settled_at is None else _written_after(files, settled_at),
        )

    @classmethod
    def of_summary(cls, summary: TableSummary) -> FileFigures:
        files = summary.files
        return cls(
            sizes=files.sizes, partitions=files.partitions, rows=files.rows, deleted=files.deleted
        )


def measure(
    snapshot: Snapshot, *, settings: Settings, settled_at: datetime | None = None
) -> Measures:
    """Return the numbers from which the health of `snapshot` is computed.

    Files that were written after `settled_at` are too new for automatic runs.
    """
    commits = _commits_since_checkpoint(snapshot)
    figures = FileFigures.of_snapshot(snapshot, settled_at)
    return measure_figures(figures, commits_since_checkpoint=commits, settings=settings)


def measure_figures(
    figures: FileFigures, *, commits_since_checkpoint: int, settings: Settings
) -> Measures:
    """Return the same numbers from those of the files."""
    target_bytes: int = settings.target_file_bytes
    small_bytes = int(target_bytes * small_file_ratio(settings))
    sizes, is_known = figures.sizes, figures.rows != UNKNOWN_ROWS
    common = (figures.partitions, small_bytes, target_bytes)
    # A file that is too new counts as a large one.
    is_new = figures.is_new
    settled = sizes if is_new is None else np.where(is_new, np.iinfo(np.int64).max, sizes)
    return Measures(
        file_count=len(sizes),
        small_file_count=int(np.count_nonzero(sizes < small_bytes)),
        excess_file_count=_excess_files(sizes, *common),
        automatic_excess_file_count=_excess_files(
            settled, *common, min_files=automatic_min_files(settings)
        ),
        deleted_rows=int(figures.deleted.sum()),
        physical_rows=int(figures.rows[is_known].sum()),
        files_without_rows=int(np.count_nonzero(~is_known)),
        commits_since_checkpoint=commits_since_checkpoint,
        checkpoint_interval=settings.checkpoint_interval,
        small_file_bytes=small_bytes,
        total_bytes=int(sizes.sum()),
    )


def most_small_files(snapshot: Snapshot, *, settings: Settings) -> int:
    """Return the number of small files of the partition that has most of them."""
    small_bytes = int(settings.target_file_bytes * settings.small_file_ratio)
    partitions = _partition_numbers(snapshot.files["partition"])
    small = _sizes(snapshot.files) < small_bytes
    return int(np.bincount(partitions[small]).max(initial=0))


def highest_deleted_row_ratio(snapshot: Snapshot) -> float:
    """Return the largest fraction of deleted rows of a file."""
    rows = snapshot.files["rows"]
    ratios = pc.divide(
        pc.cast(snapshot.files["deleted_rows"], pa.float64()), pc.cast(rows, pa.float64())
    )
    known = pc.max(ratios.filter(pc.greater(rows, 0)))
    return float(known.as_py() or 0.0)


def _sizes(files: pa.Table) -> np.ndarray:
    return _as_numpy(files["bytes"].combine_chunks())


def _written_after(files: pa.Table, moment: datetime) -> np.ndarray:
    is_after = pc.greater(files["modified_at"], pa.scalar(moment))
    found: np.ndarray = pc.fill_null(is_after, False).to_numpy()  # noqa: FBT003
    return found


def _as_numpy(numbers: pa.Array) -> np.ndarray:
    # Arrow's own conversion loads pandas, which takes longer than everything else here.
    return np.from_dlpack(numbers)


def _total(column: pa.ChunkedArray) -> int:
    return pc.sum(column).as_py() or 0


def _visible_rows(measures: Measures) -> int | None:
    if measures.files_without_rows:
        return None
    return measures.physical_rows - measures.deleted_rows


def _commits_since_checkpoint(snapshot: Snapshot) -> int:
    # Versions start at 0: without a checkpoint, all of them are replayed.
    covered = -1 if snapshot.checkpoint_version is None else snapshot.checkpoint_version
    return snapshot.version - covered


def _rewritable_for_deletes(files: pa.Table, ratio: float) -> int:
    if not _total(files["deleted_rows"]):
        return 0
    deleted_part = pc.divide(pc.cast(files["deleted_rows"], pa.float64()), files["rows"])
    return _total(pc.cast(pc.greater(deleted_part, ratio), pa.int64()))


def _partition_numbers(partition: pa.ChunkedArray) -> np.ndarray:
    """Return the number of each file's partition, from 0."""
    if partition.type.num_fields == 0:
        return np.zeros(len(partition), dtype=np.int64)
    # Flattening applies the validity of the struct itself to its fields.
    columns = pa.table({"partition": partition}).flatten().columns
    numbers = _value_numbers(columns[0])
    for column in columns[1:]:
        values = _value_numbers(column)
        # Renumbering after every column keeps the products small.
        numbers = np.unique(numbers * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    return numbers


def _value_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a number from 0 for each value, including null."""
    codes = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    return _as_numpy(codes.indices).astype(np.int64)


def _excess_files(
    sizes: np.ndarray,
    partitions: np.ndarray,
    small_bytes: int,
    target_bytes: int,
    *,
    min_files: int = 1,
) -> int:
    """Count the small files beyond those that their bytes would fill at the target size.

    Only partitions with at least `min_files` of them count.
    """
    small = sizes < small_bytes
    counts = np.bincount(partitions[small])
    filled = np.bincount(partitions[small], weights=sizes[small])
    needed = np.maximum(np.ceil(filled / target_bytes), counts > 0)
    return int(np.maximum(counts - needed, 0)[counts >= min_files].sum())


def _histogram(sizes: np.ndarray, target_bytes: int) -> tuple[SizeRange, ...]:
    edges = np.array(sorted({int(target_bytes * edge) for edge in _EDGES}))
    slots = np.searchsorted(edges, sizes, side="right") - 1
    counts = np.bincount(slots, minlength=len(edges))
    totals = np.bincount(slots, weights=sizes, minlength=len(edges))
    ends: list[int | None] = [*(int(edge) for edge in edges[1:]), None]
    return tuple(
        SizeRange(
            from_bytes=int(start), to_bytes=end, file_count=int(count), total_bytes=int(total)
        )
        for start, end, count, total in zip(edges, ends, counts, totals, strict=True)
    )
