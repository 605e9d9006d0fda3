"""What a rewrite did, in the numbers of its report: all of them computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand.model.reports import GroupCounts, MethodCounts, OperationReport
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.reports import Outcome
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import Group, GroupResult, Receipt
    from lakehand.planning.plan import Plan
    from lakehand.rewrite.stopwatch import Stopwatch

__all__ = ["Done", "report_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What came of the work."""

    groups: tuple[Group, ...]
    results: tuple[GroupResult, ...]
    #: `LakehandError.to_json()` of groups that failed.
    failures: tuple[Mapping[str, Any], ...]
    receipt: Receipt

    @property
    def committed(self) -> tuple[GroupResult, ...]:
        return tuple(r for r in self.results if r.group not in self.receipt.dropped)

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
    total_bytes = pc.sum(snapshot.files["bytes"]).as_py() or 0
    base: dict[str, Any] = {
        "operation": "compact",
        "outcome": outcome,
        "table": snapshot.table,
        "version": snapshot.version,
        "files_before": snapshot.file_count,
        "files_after": snapshot.file_count,
        "bytes_before": total_bytes,
        "bytes_after": total_bytes,
        "groups": GroupCounts(planned=len(plan.groups)),
        "files_left": plan.left,
    }
    timings = watch.milliseconds()
    base |= {"plan_ms": timings.get("plan", 0.0), "commit_ms": timings.get("commit", 0.0)}
    if done is not None:
        base |= _differences(snapshot.file_count, total_bytes, done)
    return OperationReport(**base, duration_ms=watch.total_milliseconds())


def _differences(file_count: int, total_bytes: int, done: Done) -> dict[str, Any]:
    committed = done.committed
    removed, removed_bytes = done.inputs_of(committed)
    outputs = [file for result in committed for file in result.outputs]
    proof = total_proof([result.proof for result in committed if result.proof])
    used = [result.method for result in committed]
    return {
        "version": done.receipt.version,
        "files_after": file_count - removed + len(outputs),
        "files_removed": removed,
        "files_added": len(outputs),
        "bytes_after": total_bytes - removed_bytes + sum(file.bytes for file in outputs),
        "rows_read": proof.rows if proof else 0,
        "rows_written": sum(file.rows for file in outputs),
        "methods": MethodCounts(**{method: used.count(method) for method in set(used)}),
        "groups": GroupCounts(
            planned=len(done.groups),
            committed=len(committed),
            dropped=len(done.receipt.dropped),
        ),
        "proof": proof,
        "retries": done.receipt.attempts - 1,
        "errors": done.failures,
        **_task_times(done.results),
    }


def _task_times(results: tuple[GroupResult, ...]) -> dict[str, float]:
    stages = ("read", "write", "prove")
    return {
        f"{stage}_ms": sum(result.timings.get(stage, 0.0) for result in results) for stage in stages
    }
