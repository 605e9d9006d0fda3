"""The task of a rewrite: takes a group, rewrites its rows, proves and records the result."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakehand.engine.runner_contract import granted_cores
from lakehand.formats.worker import (
    DECODINGS,
    ByteCopyWorker,
    Decoding,
    DeferredSyncWorker,
    NativeRewriteWorker,
    NotCopyable,
    NotDecodable,
    TaskLimits,
    undecodable,
)
from lakehand.model.order import parse_terms
from lakehand.model.work import Digest, Group, GroupResult, ProveMode
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import ALGORITHM, ENGINE, Digester
from lakehand.rewrite.copy import (
    copy_group,
    is_only_moved,
    moved_inputs,
    record_proved,
    tell_declined,
)
from lakehand.rewrite.proving import prove_outputs
from lakehand.rewrite.sort import sort_group
from lakehand.runs.leftovers import note_written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from lakehand.formats.worker import FormatWorker, WriteSpec
    from lakehand.runs import Run
    from lakehand.storage import Store

_logger = get_logger(__name__)

#: Memory that each thread needs for the rows that it decodes or encodes.
_THREAD_BYTES = 512 * 2**20


def keeping_reads(store: Store, prove: ProveMode) -> AbstractContextManager[None]:
    """Request each data file once within the block, unless the proof must request it again."""
    return nullcontext() if prove == "independent" else store.keeping_reads()


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteTask:
    """A function from a group to its result, as JSON. Picklable: it travels to the tasks."""

    worker: FormatWorker
    run: Run
    spec: WriteSpec
    limits: TaskLimits = field(default_factory=TaskLimits)
    #: What is asked of the proof of rows that are decoded; copied bytes are always compared.
    prove: ProveMode = "digest"

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Rewrite a group as planned, prove and record the result."""
        with keeping_reads(self.run.store, self.prove):
            return self._rewrite(Group.from_json(payload["group"]))

    def _rewrite(self, group: Group) -> dict[str, Any]:
        result = None
        if group.method == "copy" and isinstance(self.worker, ByteCopyWorker):
            try:
                result = self._copy(group, self.worker)
            except NotCopyable as reason:
                tell_declined(group, reason)
        return record_proved(self.run, result or self.recode(group), group)

    def granted_limits(self) -> TaskLimits:
        """Return the limits with the threads that the engine grants where this is called."""
        return replace(self.limits, threads=self._threads())

    def spec_of(self, group: Group) -> WriteSpec:
        """Return how the files of `group` are written: the plan says how large they are."""
        return replace(
            self.spec,
            target_file_bytes=group.target_file_bytes,
            threads=self._threads(),
            sorted_by=parse_terms(group.order) if group.curve == "linear" else (),
        )

    def _threads(self) -> int:
        """Return the threads that the engine grants, as far as there is memory for them."""
        return max(1, min(granted_cores(), self.limits.memory_bytes // _THREAD_BYTES))

    def _copy(self, group: Group, worker: ByteCopyWorker) -> GroupResult:
        """Move row groups; inputs that are not worth moving are recoded before."""
        copier = worker.copier(self.spec)
        if is_only_moved(group):
            return copy_group(copier, self.run, group)
        codec = worker.codec_of(moved_inputs(group))
        inputs = tuple(group.inputs[number] for number in group.recoded)
        part = replace(group, inputs=inputs, method="recode", recoded=())
        recoded = replace(self, spec=replace(self.spec, codec=codec)).recode(part)
        rows = self.worker.count_rows(group.inputs)
        try:
            return copy_group(copier, self.run, group, recoded=recoded, expected_rows=rows)
        finally:
            self.run.discard([file.path for file in recoded.outputs])

    def recode(self, group: Group) -> GroupResult:
        """Decode and encode the rows of `group`, in its order if it has one, and prove them."""
        rewrite = self._means_of(group)
        first, second = DECODINGS[self.prove]
        try:
            return rewrite(self, group, decoding=first)
        except NotDecodable as reason:
            message = "Group %d is read by Arrow: %s"
            log_event(_logger, logging.INFO, "decoder_changed", message, group.id, reason)
        try:
            return rewrite(self, group, decoding=second)
        except NotDecodable as reason:
            raise undecodable(f"group {group.id}", reason, self.prove) from reason

    def _means_of(self, group: Group) -> Callable[..., GroupResult]:
        if group.method == "sort":
            return sort_group
        worker = self.worker
        if not group.native or not isinstance(worker, NativeRewriteWorker):
            return recode_group
        # Without a digest of the rows, bytes that were copied to the wrong place stay unnoticed.
        if self.prove != "counts" and worker.can_copy(group.inputs):
            return partial(rewrite_natively, native=worker, is_copied=True)
        # Rows that are hashed are read here in any case, and then need not be read by others, too.
        is_read_here = self.prove != "counts" and worker.can_recode()
        return recode_group if is_read_here else partial(rewrite_natively, native=worker)


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
    cleared again for the next rows. Of two threads DuckDB gets the one that asks for rows.
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
