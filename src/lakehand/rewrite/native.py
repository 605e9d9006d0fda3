"""One group rewritten by its format's own means, and proved like any other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehand.model.work import Digest, Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester
from lakehand.prove.row_hash import ALGORITHM, ENGINE
from lakehand.rewrite.proving import prove_outputs
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.runs.leftovers import note_written

if TYPE_CHECKING:
    from lakehand.formats.worker import TaskLimits
    from lakehand.rewrite.proving import Decoding
    from lakehand.rewrite.task import RewriteTask

__all__ = ["rewrite_natively"]


def rewrite_natively(
    task: RewriteTask, group: Group, *, decoding: Decoding, is_copied: bool = False
) -> GroupResult:
    """Have the format rewrite `group`, or move its bytes, and prove that storage holds its rows.

    The format chooses the names of its files, so they are noted as soon as they are known: what is
    not proved in the end is deleted with the run.
    """
    worker, watch, limits = task.worker, Stopwatch(task.run.clock), task.granted_limits()
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    with ThreadPoolExecutor(max_workers=2) as beside:
        with watch.measure("write"):
            # Both read the same files, and neither waits for the other.
            reading = beside.submit(_read, task, group, decoding, limits)
            outputs = worker.run_native(group, stem=stem, is_copied=is_copied)
            note_written(task.run, stem, [file.path for file in outputs])
            syncing = beside.submit(worker.make_durable, outputs)
            before = reading.result()
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            proof = prove_outputs(task, group, outputs, before=before, decoding=decoding)
        with watch.measure("write"):
            syncing.result()
    return GroupResult(
        group=group.id,
        method="copy" if is_copied else "recode",
        attempt=stem,
        outputs=outputs,
        proof=proof,
        timings=watch.milliseconds(),
    )


def _read(task: RewriteTask, group: Group, decoding: Decoding, limits: TaskLimits) -> Digest:
    """Return the digest of the rows of `group`; where counts are enough, their number alone."""
    worker = task.worker
    if task.prove == "counts":
        rows = worker.count_rows(group.inputs)
        return Digest(rows=rows, lanes=(0, 0), algorithm=ALGORITHM, engine=ENGINE)
    with Digester(worker.moved_rows, threads=limits.threads) as digester:
        worker.digest_rows(group.inputs, digester, limits=limits, decoder=decoding.inputs)
        return digester.result()
