"""One group written in another order, in one task, and proved before it is reported.

Rows are decoded and hashed once, divided by ranges of their sort keys, and sorted range by range
while the ranges before are encoded.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.worker import Decoding, FormatWorker, OrderMarkingWorker, TaskLimits
from lakehand.model.batches import Gathering
from lakehand.model.order import Order, order_of
from lakehand.model.work import Group, GroupResult, StagedFile
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester
from lakehand.rewrite.file_writers import write_apart
from lakehand.rewrite.proving import prove_outputs
from lakehand.sorting.file_boundaries import Division
from lakehand.sorting.key_ranges import RangeSpool, arrange, low_memory_arrow, sorted_rows
from lakehand.sorting.virtual_files import sample_rows
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.rewrite.task import RewriteTask

#: Parts of a task's memory that a range may take, and so may rows that are divided at once.
_RANGE_SHARE = 96
#: Columns of this many bytes together stay in the processor's cache while they are sorted.
_MOST_RANGE_BYTES = 16 * 2**20
_MOST_CHUNK_BYTES = 64 * 2**20
_MOST_RANGES = 4096


def sort_group(task: RewriteTask, group: Group, *, decoding: Decoding) -> GroupResult:
    """Write the rows of `group` in its order and prove them; ProofError if that fails."""
    with low_memory_arrow():
        return _sorted(task, group, decoding=decoding)


def _sorted(task: RewriteTask, group: Group, *, decoding: Decoding) -> GroupResult:
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    order = order_of(group.order, group.curve)
    with Digester(worker.moved_rows) as digester, watch.measure("write"):
        rows = worker.read_digested(
            group.inputs,
            digester,
            limits=task.granted_limits(),
            decoder=decoding.inputs,
            dictionaries=True,
        )
        ordered = _in_order(task, group, order, watch, rows)
        is_cut = order.curve != "linear"
        written = write_apart(task, group, ordered, stem=stem, is_cut=is_cut)
        outputs = mark_ordered(worker, written, order, unit=stem)
        before = digester.result()
    reached(Step.TASK_WRITTEN)
    with watch.measure("prove"):
        proof = prove_outputs(task, group, outputs, before=before, decoding=decoding)
    return GroupResult(
        group=group.id,
        method="sort",
        attempt=stem,
        outputs=outputs,
        proof=proof,
        timings=watch.milliseconds(),
    )


def mark_ordered(
    worker: FormatWorker, files: tuple[StagedFile, ...], order: Order, *, unit: str
) -> tuple[StagedFile, ...]:
    """Record on files how their rows were sorted together, where entries of files can say so."""
    if isinstance(worker, OrderMarkingWorker):
        return worker.mark_ordered(files, order, unit=unit)
    return files


def _in_order(
    task: RewriteTask,
    group: Group,
    order: Order,
    watch: Stopwatch,
    rows: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Stream `rows` in their order, each batch with the number of its file."""
    limits = task.granted_limits()
    with watch.measure("read"):
        sample = sample_rows(task.worker, group.inputs, order)
        total_rows = task.worker.count_rows(group.inputs)
    chunks = gathered(watch.iterate("read", rows), chunk_bytes(limits))
    first = next(chunks, None)
    if first is None:
        return
    expected_bytes = first.nbytes * max(1.0, total_rows / first.num_rows)
    ranges = min(_MOST_RANGES, max(1, round(expected_bytes / _range_bytes(limits))))
    # A linear order is as narrow wherever it is cut: the writer does that by size.
    files = 1 if order.curve == "linear" else expected_files(group)
    division = Division.of_sample(order, sample, files=files, ranges=ranges)
    arranged = partial(arrange, sort_keys=division.sort_keys, ranges=division.ranges)
    with RangeSpool(len(division.ranges), limits=limits) as spool:
        for chunk in fetch_ahead(chain([first], chunks), arranged, window=limits.threads):
            for number, piece in chunk.pieces():
                spool.add(number, piece)
        yield from sorted_rows(spool.take(), division, schema=first.schema, limits=limits)


def expected_files(group: Group) -> int:
    """Return how many files of the size that is aimed for the rows of a group fill."""
    live_bytes = sum(
        file.bytes * (1 - file.deleted_rows / file.rows) if file.rows else file.bytes
        for file in group.inputs
    )
    return max(1, round(live_bytes / group.target_file_bytes))


def _range_bytes(limits: TaskLimits) -> int:
    """Return how much memory a range may take, which is held several times while it is sorted."""
    return min(_MOST_RANGE_BYTES, limits.memory_bytes // _RANGE_SHARE)


def chunk_bytes(limits: TaskLimits) -> int:
    """Return how much memory rows may take that are divided at once."""
    return min(_MOST_CHUNK_BYTES, limits.memory_bytes // _RANGE_SHARE)


def gathered(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Join batches into tables of about `most_bytes`."""
    waiting = Gathering[pa.RecordBatch](size=most_bytes)
    schema = None
    for part in (part for batch in batches for part in _parts(batch, most_bytes)):
        # Strings that are few in one batch come as numbers, and as strings in another.
        if waiting.rows and not part.schema.equals(schema):
            yield pa.Table.from_batches(waiting.take())
        schema = part.schema
        if waiting.add(part):
            yield pa.Table.from_batches(waiting.take())
    if waiting.rows:
        yield pa.Table.from_batches(waiting.take())


def _parts(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Divide a batch of long rows: those who read it count rows, and never fewer than some."""
    count = min(batch.num_rows, -(-batch.nbytes // most_bytes))
    bounds = [number * batch.num_rows // count for number in range(count + 1)] if count else []
    yield from (batch.slice(start, end - start) for start, end in pairwise(bounds))
