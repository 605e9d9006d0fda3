"""Rows on their way: as bytes, with narrower decimals, and into several files at once."""

from __future__ import annotations

import threading
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.rewrite import ranges
from lakehand.rewrite.apart import write_apart
from lakehand.rewrite.narrow import narrowed, narrowed_schema, widened
from lakehand.rewrite.pieces import known_schema, pack_rows, unpack_rows

PRICES = [Decimal("0.01"), Decimal("-0.01"), None, Decimal(10**15), Decimal(-(10**15)), Decimal(0)]
KINDS = [pa.decimal128(18, 2), pa.decimal128(19, 2), pa.decimal256(18, 2)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("start", "length"), [(0, 12), (1, 7), (3, 2), (4, 0)])
def test_decimals_are_the_same_after_they_were_narrow(kind, start, length):
    chunk = pa.array([*PRICES, *PRICES], kind)
    wide = pa.table({"price": pa.chunked_array([chunk.slice(start, length), chunk.slice(5)])})

    column = narrowed(wide["price"])
    rows = pa.RecordBatch.from_arrays(
        [column.combine_chunks(), pa.nulls(len(column))],
        schema=narrowed_schema(wide.schema).append(pa.field("other", pa.null())),
    ).slice(1)

    assert (column.type == pa.int64()) == (kind == KINDS[0])
    again = widened(rows, wide.schema)
    again.validate(full=True)
    assert again.column("price").to_pylist() == wide["price"].to_pylist()[1:]
    assert again.schema.field("price") == wide.schema.field("price")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b", "a"]),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array([["a"], None, ["b", "b"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_rows_that_were_bytes_are_the_same(column, compression):
    rows = pa.record_batch({"n": range(4), "c": column})
    known = known_schema(rows.schema)

    for schema in (known, None, pa.schema([("other", pa.int8())])):
        content = pack_rows(rows.slice(1, 2), schema, compression=compression)
        assert unpack_rows(content, schema).equals(rows.slice(1, 2))


def test_rows_with_dictionaries_come_back_from_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(ranges, "_waiting_bytes", lambda _limits: 0)
    rows = pa.record_batch({"c": pa.array(["a", None, "b"]).dictionary_encode()})

    with ranges.RangeSpool(3, limits=TaskLimits(scratch_directory=str(tmp_path))) as spool:
        spool.add(2, rows)
        spool.add(0, rows.slice(1))
        spool.add(2, rows.slice(2))
        found = [
            (number, [piece.to_pydict()["c"] for piece in some]) for number, some in spool.take()
        ]

    assert found == [(0, [[None, "b"]]), (2, [["a", None, "b"], ["b"]])]
    assert list(tmp_path.iterdir()) == []


class Writer:
    """Writes files of one thread each, and notes which were open at once."""

    def __init__(self, *, fails_at=None):
        self.fails_at = fails_at
        self.open, self.most_open, self.vanished = set(), 0, []
        self._lock = threading.Lock()

    def write(self, batches, spec, *, like, stem):
        assert spec.target_file_bytes == 20
        with self._lock:
            self.open.add(stem)
            self.most_open = max(self.most_open, len(self.open))
        try:
            rows = []
            for batch in batches:
                rows += batch["n"].to_pylist()
                _fail_if(rows[-1] == self.fails_at)
        except BaseException:
            self.vanished.append(stem)
            raise
        finally:
            self.open.discard(stem)
        return ((stem, rows),)


def _fail_if(is_full):
    if is_full:
        raise OSError("disk is full")


def written(writer, rows, *, threads=2):
    spec = WriteSpec(target_file_bytes=10, threads=threads)
    task = SimpleNamespace(worker=writer, spec_of=lambda _group: spec)
    return write_apart(task, SimpleNamespace(inputs=()), rows, stem="s")


def numbered(files=5, batches=6):
    for file in range(files):
        for batch in range(batches):
            yield file, pa.record_batch({"n": [100 * file + batch]})


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 2)])
def test_files_have_their_own_rows_in_order_and_no_more_than_two_are_open(threads, most):
    writer = Writer()

    files = written(writer, numbered(), threads=threads)

    assert files == tuple(
        (f"s-{file:04d}", [100 * file + batch for batch in range(6)]) for file in range(5)
    )
    assert writer.most_open <= most


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_cannot_be_written_stops_all(threads):
    writer = Writer(fails_at=201)

    with pytest.raises(OSError, match="disk is full"):
        written(writer, numbered(), threads=threads)

    assert "s-0002" in writer.vanished
    assert not writer.open


def test_rows_that_cannot_be_read_make_the_open_file_vanish():
    def rows():
        yield from numbered(files=2, batches=3)
        raise ValueError("unreadable")

    writer = Writer()
    with pytest.raises(ValueError, match="unreadable"):
        written(writer, rows())

    assert "s-0001" in writer.vanished
    assert not writer.open
