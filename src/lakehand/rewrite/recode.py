"""One group rewritten by decoding and encoding its rows, or by its format itself, and proved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehand.formats.worker import DeferredSyncWorker
from lakehand.model.work import Digest, Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.observe.stopwatch import Stopwatch
from lakehand.prove.digest import Digester
from lakehand.prove.row_hash import ALGORITHM, ENGINE
from lakehand.rewrite.proving import prove_outputs
from lakehand.runs.leftovers import note_written

if TYPE_CHECKING:
    from lakehand.formats.worker import NativeRewriteWorker, TaskLimits
    from lakehand.rewrite.proving import Decoding
    from lakehand.rewrite.task import RewriteTask


def recode_group(task: RewriteTask, group: Group, *, decoding: Decoding) -> GroupResult:
    """Rewrite the rows of `group` and prove that storage holds them; ProofError if it does not.

    Rows are hashed by the query that decodes them, so that part of the proof counts as reading.
    """
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    limits, decoder = _limits_beside_encoders(task.granted_limits()), decoding.inputs
    deferred = worker if isinstance(worker, DeferredSyncWorker) else None
    with ThreadPoolExecutor(max_workers=1) as beside:
        with Digester(worker.moved_rows) as digester, watch.measure("write"):
            rows = worker.read_digested(
                group.inputs, digester, limits=limits, decoder=decoder, dictionaries=True
            )
            spec = replace(task.spec_of(group), is_durable=deferred is None)
            outputs = worker.write(watch.iterate("read", rows), spec, like=group.inputs, stem=stem)
            syncing = beside.submit(deferred.make_durable, outputs) if deferred else None
            before = digester.result()
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            proof = prove_outputs(task, group, outputs, before=before, decoding=decoding)
        with watch.measure("write"):
            if syncing is not None:
                syncing.result()
    return GroupResult(
        group=group.id, attempt=stem, outputs=outputs, proof=proof, timings=watch.milliseconds()
    )


def _limits_beside_encoders(limits: TaskLimits) -> TaskLimits:
    """Leave half of the threads to those who encode, which costs as much as decoding.

    A thread of DuckDB that has to wait for them makes malloc give all free memory back, and it is
    cleared anew for the next rows. Of two threads DuckDB gets the one that asks for rows.
    """
    return replace(limits, threads=-(-limits.threads // 2))


def rewrite_natively(
    task: RewriteTask,
    group: Group,
    *,
    native: NativeRewriteWorker,
    decoding: Decoding,
    is_copied: bool = False,
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
            outputs = native.run_native(group, stem=stem, is_copied=is_copied)
            note_written(task.run, stem, [file.path for file in outputs])
            syncing = beside.submit(native.make_durable, outputs)
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
