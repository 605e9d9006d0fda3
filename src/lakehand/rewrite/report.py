"""What a rewrite did, in the numbers of its report: all of them computed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from lakehand.model.reports import (
    BeforeAfter,
    ClusterReport,
    GroupCounts,
    Measured,
    MethodCounts,
    OperationReport,
    ZoneWidths,
)
from lakehand.planning.file_bounds import Extent, extents_of
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.policy import Reason
from lakehand.planning.probes import probes_of_bounds, skip_rate
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from lakehand.model.order import Order
    from lakehand.model.reports import EngineName, Outcome
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import Group, GroupResult, Receipt, StagedFile
    from lakehand.observe.clock import Stopwatch
    from lakehand.planning.plan import Plan

#: Why a run has nothing to do, the reason of the files that came closest to being rewritten first.
_CLOSEST_FIRST = (
    Reason.DISABLED,
    Reason.BEING_REWRITTEN,
    Reason.LATER_RUN,
    Reason.RECENTLY_WRITTEN,
    Reason.BELOW_MINIMUM_FILES,
    Reason.SINGLE_FILE,
)
_NO_FILES = "no_files_to_compact"


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The results of the work."""

    groups: tuple[Group, ...]
    results: tuple[GroupResult, ...]
    #: `LakehandError.to_json()` of groups that failed.
    failures: tuple[Mapping[str, Any], ...]
    #: The sum of all commits, under the last version.
    receipt: Receipt
    versions: tuple[int, ...] = ()
    #: Groups that an earlier run has rewritten.
    adopted: Collection[int] = ()
    #: None if an earlier run has rewritten all of them.
    ran_on: EngineName | None = None

    @property
    def committed(self) -> tuple[GroupResult, ...]:
        return tuple(r for r in self.results if r.group not in self.receipt.dropped)

    @property
    def outputs(self) -> list[StagedFile]:
        """The files that are now in the table."""
        return [file for result in self.committed for file in result.outputs]

    def inputs_of(self, results: tuple[GroupResult, ...]) -> tuple[int, int]:
        """Return number and bytes of the files that `results` replace."""
        groups = {group.id: group for group in self.groups}
        chosen = [groups[result.group] for result in results]
        return sum(len(g.inputs) for g in chosen), sum(g.input_bytes for g in chosen)


def report_of(
    snapshot: Snapshot,
    plan: Plan,
    watch: Stopwatch,
    *,
    outcome: Outcome,
    done: Done | None = None,
) -> OperationReport:
    """Return the report of a compaction; without `done` the table is as it was."""
    timings = watch.milliseconds()
    duration_ms = watch.total_milliseconds()
    figures = _unchanged(snapshot, plan)
    if done is not None:
        figures |= _differences(figures, done)
        figures |= _rates(done, seconds=duration_ms / 1000)
        figures |= _outputs(plan, done)
    return OperationReport(
        operation=plan.operation,
        outcome=outcome,
        table=snapshot.table,
        average_file_bytes=_averages(figures),
        duration_ms=duration_ms,
        plan_ms=timings.get("plan", 0.0),
        commit_ms=timings.get("commit", 0.0),
        **figures,
        **_of_plan(plan),
    )


def _unchanged(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "files_before": snapshot.file_count,
        "files_after": snapshot.file_count,
        "bytes_before": snapshot.total_bytes,
        "bytes_after": snapshot.total_bytes,
        "groups": GroupCounts(planned=len(plan.groups)),
    }


def _of_plan(plan: Plan) -> dict[str, Any]:
    return {
        "files_chosen": plan.chosen,
        "files_left": plan.left,
        "files_skipped_large_enough": plan.left.get(Reason.LARGE_ENOUGH, 0),
        "skip_reason": None if plan.groups else _skip_reason(plan),
        "left_to_runs": plan.left_to_runs,
        "remaining": plan.remaining,
        "strategy": plan.policy.strategy,
        "forecast": plan.forecast,
    }


def _skip_reason(plan: Plan) -> str:
    """Name the reason of the files that came closest to being rewritten."""
    outside = {Reason.OUTSIDE_PREDICATE, Reason.OUTSIDE_FILTER}
    if plan.left and outside.issuperset(plan.left):
        return next(iter(plan.left))
    return next((str(reason) for reason in _CLOSEST_FIRST if reason in plan.left), _NO_FILES)


def _averages(figures: Mapping[str, Any]) -> BeforeAfter:
    before, after = (
        figures[f"bytes_{moment}"] // max(1, figures[f"files_{moment}"])
        for moment in ("before", "after")
    )
    return BeforeAfter(before=before, after=after)


def _differences(before: Mapping[str, Any], done: Done) -> dict[str, Any]:
    committed = done.committed
    removed, removed_bytes = done.inputs_of(committed)
    outputs = done.outputs
    added_bytes = sum(file.bytes for file in outputs)
    proof = total_proof([result.proof for result in committed if result.proof])
    used = [result.method for result in committed]
    return {
        "version": done.receipt.version,
        "versions": done.versions,
        "files_after": before["files_before"] - removed + len(outputs),
        "files_removed": removed,
        "files_added": len(outputs),
        "bytes_removed": removed_bytes,
        "bytes_added": added_bytes,
        "bytes_after": before["bytes_before"] - removed_bytes + added_bytes,
        "rows_read": proof.rows if proof else 0,
        "rows_written": sum(file.rows for file in outputs),
        "methods": MethodCounts(**{method: used.count(method) for method in set(used)}),
        "groups": GroupCounts(
            planned=len(done.groups),
            committed=len(committed),
            dropped=len(done.receipt.dropped),
            adopted=len(done.adopted),
        ),
        "moved_in_store_bytes": sum(result.moved_in_store_bytes for result in committed),
        "streamed_because": tuple(sorted({r.streamed_because for r in committed} - {None})),
        "proof": proof,
        "retries": done.receipt.attempts - 1,
        "errors": done.failures,
        "ran_on": done.ran_on,
        **_task_times([result for result in done.results if result.group not in done.adopted]),
    }


def _rates(done: Done, *, seconds: float) -> dict[str, float]:
    rows = sum(file.rows for file in done.outputs)
    _, read_bytes = done.inputs_of(done.committed)
    return {
        "rows_per_second": rows / seconds if seconds else 0.0,
        "bytes_per_second": read_bytes / seconds if seconds else 0.0,
    }


def _outputs(plan: Plan, done: Done) -> dict[str, Any]:
    sizes = [file.bytes for file in done.outputs]
    room = len(sizes) * plan.policy.target_file_bytes
    partition_of = {path: group.partition for group in plan.groups for path in group.paths}
    inputs = {group.id: group.inputs for group in done.groups}
    partitions = {partition_of.get(inputs[r.group][0].path) for r in done.committed}
    return {
        "bin_packing_efficiency": sum(sizes) / room if room else None,
        "partitions_compacted": len(partitions),
    }


def _task_times(results: Sequence[GroupResult]) -> dict[str, float]:
    stages = ("read", "write", "prove")
    return {
        f"{stage}_ms": sum(result.timings.get(stage, 0.0) for result in results) for stage in stages
    }


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
    """Return 1 if no files overlap, 0 if each overlaps all others."""
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
