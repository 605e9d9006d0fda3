"""One group written in another order, in one task, and proved before it is reported.

Rows are decoded and hashed once, divided by ranges of their sort keys, and sorted range by range
while the ranges before are encoded.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.model.work import Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.prove.digest import Digester
from lakehand.rewrite.ordering import order_of
from lakehand.rewrite.proving import prove_outputs
from lakehand.rewrite.ranges import KeyRanges, RangeSpool, arrange, sorted_rows
from lakehand.rewrite.sampling import sample_rows
from lakehand.rewrite.sort_keys import SortKeys
from lakehand.rewrite.stopwatch import Stopwatch
from lakehand.storage.prefetch import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.formats.worker import TaskLimits
    from lakehand.model.order import Order
    from lakehand.rewrite.proving import Decoding
    from lakehand.rewrite.task import RewriteTask

__all__ = ["gathered", "in_order", "range_bytes", "sort_group"]

#: Parts of a task's memory that a range may take.
_RANGE_SHARE = 48
_MOST_RANGE_BYTES = 64 * 2**20
_MOST_RANGES = 4096


def sort_group(task: RewriteTask, group: Group, *, decoding: Decoding) -> GroupResult:
    """Write the rows of `group` in its order and prove them; ProofError if that fails."""
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    limits, decoder = task.granted_limits(), decoding.inputs
    order = order_of(group.order, group.curve)
    with Digester(worker.moved_rows) as digester, watch.measure("write"):
        with watch.measure("read"):
            sample = sample_rows(worker, group.inputs, order)
            total_rows = worker.count_rows(group.inputs)
        rows = worker.read_digested(group.inputs, digester, limits=limits, decoder=decoder)
        ordered = in_order(
            watch.iterate("read", rows), order, sample, limits=limits, total_rows=total_rows
        )
        outputs = worker.write(ordered, task.spec_of(group), like=group.inputs, stem=stem)
        outputs = worker.mark_ordered(outputs, order, unit=stem)
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


def in_order(
    rows: Iterable[pa.RecordBatch],
    order: Order,
    sample: pa.Table,
    *,
    limits: TaskLimits,
    total_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Stream `rows` in their order, within the limits of a task; `sample` stands for all of them.

    How many rows there will be is an estimate that divides them well.
    """
    sort_keys = SortKeys.of_sample(order, sample)
    chunks = gathered(rows, range_bytes(limits))
    first = next(chunks, None)
    if first is None:
        return
    expected_bytes = first.nbytes * max(1.0, total_rows / first.num_rows)
    count = round(expected_bytes / range_bytes(limits))
    ranges = KeyRanges.of_sample(sort_keys.keys(sample), count=min(_MOST_RANGES, max(1, count)))
    arranged = partial(arrange, sort_keys=sort_keys, ranges=ranges)
    with RangeSpool(len(ranges), limits=limits) as spool:
        for chunk in fetch_ahead(chain([first], chunks), arranged, window=limits.threads):
            for number, piece in chunk.pieces():
                spool.add(number, piece)
        yield from sorted_rows(spool, sort_keys, threads=limits.threads)


def range_bytes(limits: TaskLimits) -> int:
    """Return how much memory a range may take, which is held several times while it is sorted."""
    return min(_MOST_RANGE_BYTES, limits.memory_bytes // _RANGE_SHARE)


def gathered(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Join batches into tables of about so many bytes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
