"""A source whose epochs can be read again and again, and sinks that write them into tables."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from lakehand.sink import TableSink

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("id", pa.int64()), ("epoch", pa.int32()), ("part", pa.string())])


def epoch_ids(writer: str, epoch: int) -> list[int]:
    """Return the ids of one epoch: the same ones however often they are asked for."""
    chance = random.Random(f"{writer}-{epoch}")
    first = (int(writer.rpartition("-")[2]) * 1_000 + epoch) * 1_000
    return list(range(first, first + chance.randint(1, 300)))


def batches(writer: str, epoch: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one epoch in a few batches."""
    ids = epoch_ids(writer, epoch)
    for start in range(0, len(ids), 90):
        part = ids[start : start + 90]
        yield batch_of(part, epoch)


def batch_of(ids: list[int], epoch: int = 0) -> pa.RecordBatch:
    columns = {
        "id": ids,
        "epoch": [epoch] * len(ids),
        "part": [f"p{number % 3}" for number in ids],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def write_epochs(
    place: Any, epochs: int, writer: str = "writer-1", first: int = 1, **options: Any
) -> None:
    """Bring the epochs of a writer into the table at `place`, those that are there or not."""
    options.setdefault("max_buffer_records", 100)
    with TableSink(place, writer_id=writer, **options) as sink:
        for epoch in range(first, first + epochs):
            sink.begin_epoch(epoch)
            for batch in batches(writer, epoch):
                sink.write(batch)
            sink.commit_epoch()


def expected_ids(epochs: int, *writers: str, first: int = 1) -> list[int]:
    names = writers or ("writer-1",)
    numbers = range(first, first + epochs)
    return sorted(i for name in names for number in numbers for i in epoch_ids(name, number))


def ids_in(place: Any, **options: Any) -> list[int]:
    """Return the ids in the table at `place`, each as often as it is there."""
    table = lakehand.open_table(place, **options)
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())
