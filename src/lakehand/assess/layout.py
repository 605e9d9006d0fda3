"""How well files are kept apart by the values of some columns, from their statistics alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import ValidationError
from lakehand.planning.file_bounds import extents_of, value_bounds
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.probes import ProbeSet, probes_of_bounds, skip_rate
from lakehand.rewrite.ordering import orderable_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.planning.file_bounds import Extent
    from lakehand.planning.probes import SkipRate

__all__ = [
    "ColumnLayout",
    "Layout",
    "measure_layout",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnLayout:
    """How well one column keeps the files apart."""

    #: Name of the column.
    column: str
    #: Files that hold the middle of a file's range in this column, itself included, on average.
    overlap_depth: float
    #: The same for the file that lies deepest.
    max_overlap_depth: int
    #: Share of the files that questions on this column alone skip; null if there are no bounds.
    skip_rate: float | None
    #: Files that do not say between which values they lie: no question skips them.
    files_without_bounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How well some columns, each and together, keep the files of a table apart."""

    #: The columns that were asked for.
    columns: tuple[str, ...]
    #: Files that hold the middle of a file's ranges in all columns, itself included, on average.
    overlap_depth: float
    #: The same for the file that lies deepest.
    max_overlap_depth: int
    #: Share of the files that min/max statistics skip, averaged over all questions.
    skip_rate: float
    #: Share of the bytes that they skip.
    skip_rate_bytes: float
    #: How many questions were asked.
    probe_count: int
    #: Each column by itself.
    by_column: tuple[ColumnLayout, ...]


def measure_layout(snapshot: Snapshot, columns: Sequence[str]) -> Layout:
    """Measure how files are kept apart by `columns`, of which `snapshot` has the bounds."""
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
                f"values of {column!r} have no order; those that have: {', '.join(ordered)}",
                field=column,
            )
