"""One group rewritten by decoding and encoding its rows, and proved before it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.model.work import Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester, digest
from lakehand.prove.evidence import prove_equal
from lakehand.rewrite.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakehand.formats.base import FormatWorker
    from lakehand.model.work import Digest, StagedFile
    from lakehand.rewrite.task import RewriteTask

__all__ = ["recode_group"]


def recode_group(task: RewriteTask, group: Group) -> GroupResult:
    """Rewrite the rows of `group` and prove that storage holds them; ProofError if it does not."""
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    reader = worker.read(group.inputs, row_identity=worker.tracks_rows)
    with Digester(reader.schema) as digester, watch.measure("write"):
        rows = _observed(watch.iterate("read", reader), digester, watch)
        outputs = worker.write(rows, task.spec, like=group.inputs, stem=stem)
        before = digester.result()
    reached(Step.TASK_WRITTEN)
    with watch.measure("prove"):
        proof = prove_equal(
            before,
            _digest_of_outputs(worker, outputs, reader.schema),
            expected_rows=worker.count_rows(group.inputs),
            proved_bytes=sum(file.bytes for file in outputs),
            subject=f"group {group.id} ({len(group.inputs)} files)",
        )
    return GroupResult(
        group=group.id, attempt=stem, outputs=outputs, proof=proof, timings=watch.milliseconds()
    )


def _observed(
    batches: Iterable[pa.RecordBatch], digester: Digester, watch: Stopwatch
) -> Iterator[pa.RecordBatch]:
    """Pass batches on to the writer and digest them on the way: the rows are decoded once."""
    for batch in batches:
        with watch.measure("prove"):
            digester.add(batch)
        yield batch


def _digest_of_outputs(
    worker: FormatWorker, outputs: tuple[StagedFile, ...], schema: pa.Schema
) -> Digest:
    if not outputs:
        return digest((), schema)
    return digest(worker.read_staged(outputs, row_identity=worker.tracks_rows), schema)
