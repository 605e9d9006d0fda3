"""Rows on their way: as bytes, with narrower numbers, and into several files at once."""

from __future__ import annotations

import threading
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.rewrite import shuffle
from lakehand.rewrite.file_writers import write_apart
from lakehand.sorting import key_ranges
from lakehand.sorting.key_ranges import known_schema, narrowed, pack_rows, unpack_rows, widened

PRICES = [Decimal("0.01"), Decimal("-0.01"), None, Decimal(10**15), Decimal(-(10**15)), Decimal(0)]
NUMBERS = {
    kind: [0, 1, None, *(int(end) for end in (np.iinfo(str(kind)).min, np.iinfo(str(kind)).max))]
    for kind in map(pa.type_for_alias, ("int8", "int16", "int32", "int64"))
} | {
    kind: [0, 1, None, int(np.iinfo(str(kind)).max)]
    for kind in map(pa.type_for_alias, ("uint8", "uint16", "uint32", "uint64"))
}
WIDE = {
    pa.decimal128(18, 2): PRICES,
    pa.decimal128(19, 2): PRICES,
    pa.decimal256(18, 2): PRICES,
    pa.date32(): [date.min, date.max, None, date(1970, 1, 1), date(1969, 12, 31)],
    pa.float64(): [0.0, -0.0, None, 1e300],
    pa.timestamp("us"): [datetime.min, None, datetime.max],  # noqa: DTZ901  Arrow's has none
    **NUMBERS,
}


@pytest.mark.parametrize("kind", WIDE, ids=str)
@pytest.mark.parametrize(("start", "length"), [(0, 12), (1, 7), (3, 2), (4, 0)])
def test_numbers_are_the_same_after_they_were_narrow(kind, start, length):
    chunk = pa.array(WIDE[kind] * 6, kind)
    wide = pa.chunked_array([chunk.slice(start, length), chunk.slice(5)])

    again = widened(narrowed(wide).combine_chunks().slice(1), kind)

    again.validate(full=True)
    assert again.equals(wide.combine_chunks().slice(1))


@pytest.mark.parametrize(
    ("numbers", "kind", "expected"),
    [
        ([-128, None, 127], pa.int64(), pa.int8()),
        ([-129], pa.int64(), pa.int16()),
        ([128], pa.int32(), pa.int16()),
        ([2**31 - 1, -(2**31)], pa.int64(), pa.int32()),
        ([2**31], pa.int64(), pa.int64()),
        ([255], pa.uint64(), pa.uint8()),
        ([256], pa.uint64(), pa.uint16()),
        ([None], pa.int64(), pa.int8()),
        ([], pa.int64(), pa.int8()),
        ([date(2059, 9, 18)], pa.date32(), pa.int16()),
        ([date(2059, 9, 19)], pa.date32(), pa.int32()),
        ([Decimal("1.27")], pa.decimal128(18, 2), pa.int8()),
    ],
)
def test_numbers_take_as_few_bytes_as_they_need(numbers, kind, expected):
    assert narrowed(pa.chunked_array([numbers], kind)).type == expected


def test_rows_that_were_narrow_in_different_ways_are_joined():
    days = [date(2026, 11, 16), None, date.max, date.min]
    wide = pa.table({"n": [1, 2**40, None, -300], "day": days, "price": PRICES[:4]})
    keys = pa.array([5, 2**50, 6, 7], pa.uint64())
    texts = pa.array(["a", "b", "a", "b"])
    wide = wide.append_column("text", texts).append_column("key", keys)
    numbered = wide.set_column(3, "text", texts.dictionary_encode())

    for many in ([wide] * 4, [numbered] * 4, [wide, numbered, numbered, wide]):
        pieces = [narrow_batch(rows.slice(place, 1)) for place, rows in enumerate(many)]
        assert len({piece.schema for piece in pieces}) == 4
        joined = key_ranges._joined(pieces)
        for name, column in zip(joined.column_names, joined.columns, strict=True):
            kind = wide.schema.field(name).type
            assert widened(column.combine_chunks(), kind).to_pylist() == wide[name].to_pylist()


def narrow_batch(rows):
    columns = [narrowed(column).combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.column_names)


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


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.random.default_rng(1).integers(0, 2**62, 5_000), None),
        (["the same text in all of the rows"] * 5_000, "lz4"),
        ([], None),
    ],
)
def test_rows_are_compressed_where_that_halves_them(column, expected):
    rows = pa.record_batch({"c": pa.array(column)})

    assert shuffle._worthwhile_compression(rows) == expected


def test_rows_with_dictionaries_come_back_from_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(key_ranges, "_waiting_bytes", lambda _limits: 0)
    rows = pa.record_batch({"c": pa.array(["a", None, "b"]).dictionary_encode()})

    with key_ranges.RangeSpool(3, limits=TaskLimits(scratch_directory=str(tmp_path))) as spool:
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
