"""What an order did for queries, measured on the statistics of the files before and after."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from lakehand.model.reports import ClusterReport, Measured, OperationReport, ZoneWidths
from lakehand.planning.file_bounds import extents_of
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.probes import probes_of_bounds, skip_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.model.order import Order
    from lakehand.planning.file_bounds import Extent

__all__ = ["cluster_report", "measure_change"]


def cluster_report(
    report: OperationReport, order: Order, *, before: pa.Table, after: pa.Table
) -> ClusterReport:
    """Add to `report` what is true of the files of a table, which have bounds of the columns."""
    skipped, depth = measure_change(order, before=before, after=after)
    return ClusterReport(
        **{field.name: getattr(report, field.name) for field in fields(OperationReport)},
        columns=order.columns,
        curve=order.curve,
        skip_rate=skipped,
        overlap_depth=depth,
        data_skipping_improvement=skipped.after - skipped.before,
        clustering_ratio=_clustering_ratio(after.num_rows, depth.after),
        zone_widths=_zone_widths(extents_of(after, order.columns)),
    )


def measure_change(order: Order, *, before: pa.Table, after: pa.Table) -> tuple[Measured, Measured]:
    """Return the skip rate and the overlap depth of the files of a table, which have bounds."""
    # The same questions for both, drawn where values are known best.
    probes = probes_of_bounds(after, order.columns)
    rates = [skip_rate(files, probes).files for files in (before, after)]
    depths = [overlap_depth(extents_of(files, order.columns)).average for files in (before, after)]
    return (
        Measured(before=rates[0], after=rates[1]),
        Measured(before=depths[0], after=depths[1]),
    )


def _clustering_ratio(file_count: int, depth: float) -> float:
    """Return 1 where no file lies over another, 0 where each lies over all."""
    return 1.0 if file_count <= 1 else 1 - (max(depth, 1) - 1) / (file_count - 1)


def _zone_widths(extents: Sequence[Extent]) -> ZoneWidths:
    """Return which part of all values a file spans in a column."""
    widths = np.concatenate(
        [(each.high - each.low)[each.has_values] / max(1, each.rank_count - 1) for each in extents]
    )
    if not len(widths):
        return ZoneWidths(average=0.0, minimum=0.0, maximum=0.0)
    return ZoneWidths(
        average=float(widths.mean()), minimum=float(widths.min()), maximum=float(widths.max())
    )
