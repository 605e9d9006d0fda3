"""What a predicate rules out is not read: files, row groups, columns. The bytes are counted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.parquet.footer import TAIL_BYTES
from lakehand.storage import CountingStore
from support.reading import array, column, fresh_store, put_file, read, struct, worker_of
from support.rows_and_bounds import SCHEMA, files, predicates

ROWS, GROUP_ROWS = 400_000, 50_000
COLUMNS = (column("id", "long"), column("noise", "double"), column("more", "double"))


@pytest.fixture(scope="module")
def stored():
    store = fresh_store()
    noise = np.random.default_rng(7).random(ROWS)
    rows = {"id": np.arange(ROWS), "noise": noise, "more": noise[::-1]}
    return store, put_file(store, pa.table(rows), row_group_size=GROUP_ROWS)


def counted(stored, **options):
    store, file = stored
    counting = CountingStore(store)
    rows = read(worker_of(counting, *COLUMNS), file, **options)
    return rows, counting.bytes_read / file.bytes


def test_a_whole_read_reads_each_byte_about_once(stored):
    rows, share = counted(stored)
    assert rows.num_rows == ROWS
    assert share < 1 + 2 * TAIL_BYTES / stored[1].bytes


def test_only_the_columns_that_are_needed_are_read(stored):
    rows, share = counted(stored, columns=["noise"])
    assert rows.num_rows == ROWS
    assert 0.25 < share < 0.45


def test_row_groups_that_cannot_match_are_not_read(stored):
    rows, share = counted(stored, columns=["noise"], where=f"id >= {ROWS - 10}")
    assert rows.num_rows == 10
    assert share < 0.1 + TAIL_BYTES / stored[1].bytes


def test_a_predicate_that_nothing_can_match_reads_the_footer_only(stored):
    rows, share = counted(stored, where="id < 0 OR id > 1000000")
    assert rows.num_rows == 0
    assert share <= TAIL_BYTES / stored[1].bytes


def test_counting_rows_by_partition_values_reads_the_footer_only():
    store = fresh_store()
    file = put_file(store, {"id": np.arange(ROWS)}, add={"partitionValues": {"p": "eu"}})
    counting = CountingStore(store)
    worker = worker_of(counting, column("id", "long"), column("p", "string"), partition_by=["p"])

    assert read(worker, file, columns=["p"], where="p = 'eu'").num_rows == ROWS
    assert counting.bytes_read <= TAIL_BYTES


@settings(max_examples=30, deadline=None)
@given(st.lists(files(), min_size=1, max_size=6), predicates("ifst"))
def test_skipping_row_groups_changes_no_result(batches, text):
    rows = pa.Table.from_batches(batches).drop_columns("p")
    store = fresh_store()
    file = put_file(store, rows, row_group_size=2)
    types = {"i": "long", "f": "double", "s": "string", "t": "timestamp"}
    worker = worker_of(store, *(column(name, type_) for name, type_ in types.items()))

    wanted = keep_true(parse_predicate(text, SCHEMA), rows.combine_chunks().to_batches()[0])
    assert str(read(worker, file, where=text).to_pylist()) == str(wanted.to_pylist())


@pytest.mark.parametrize(
    ("type_", "low", "high", "where"),
    [
        ("byte", 1, 9, "v = 9"),
        ("integer", 1, 9, "v > 5"),
        ("boolean", False, True, "v"),
        ("date", dt.date(2026, 1, 1), dt.date(2026, 2, 1), "v >= '2026-01-15'"),
        ("decimal(9,2)", Decimal("1.00"), Decimal("9.00"), "v = 9"),
        ("decimal(18,2)", Decimal("1.00"), Decimal("9.00"), "v = 9.00"),
        ("string", "a", "z", "v LIKE 'z%'"),
        ("float", 1.0, 9.0, "v = 9"),
    ],
)
def test_bounds_of_every_type_skip_row_groups(type_, low, high, where):
    store = fresh_store()
    worker = worker_of(store, column("v", type_))
    rows = pa.table({"v": pa.array([low] * 100 + [high] * 100, worker.schema.field("v").type)})
    file = put_file(store, rows, row_group_size=100, store_decimal_as_integer=True)

    assert read(worker, file, where=where)["v"].unique().to_pylist() == [high]
    assert _groups_read(worker, file, where) == 1


def test_bounds_of_nested_and_widened_columns_skip_row_groups():
    store = fresh_store()
    inner = struct(column("y", "long"))
    worker = worker_of(store, column("x", inner), column("l", array("long")))
    values = [{"y": 1}] * 100 + [{"y": 9}] * 100
    stored = pa.table({"x": pa.array(values, pa.struct([("y", pa.int32())])), "l": [[1]] * 200})
    file = put_file(store, stored, row_group_size=100)

    assert read(worker, file, where="x.y > 5 AND l IS NOT NULL").num_rows == 100
    assert _groups_read(worker, file, "x.y > 5 AND l IS NOT NULL") == 1


def test_bounds_in_bytes_that_writers_order_differently_skip_nothing():
    store = fresh_store()
    worker = worker_of(store, column("v", "decimal(38,2)"))
    rows = pa.table({"v": pa.array([Decimal(1), Decimal(9)], pa.decimal128(38, 2))})
    file = put_file(store, rows, row_group_size=1)

    assert _groups_read(worker, file, "v = 9") == 2
    assert read(worker, file, where="v = 9").num_rows == 1


def _groups_read(worker, file, where) -> int:
    from lakehand.formats.delta.read.file_plan import ReadRequest, SourceFile, plan_file

    request = ReadRequest(
        store=worker.store,
        schema=worker.context.schema,
        mode=worker.context.mode,
        partition_columns=(),
        properties={},
        time_zone="UTC",
        columns=worker.context.schema.fields,
        predicate=parse_predicate(where, worker.schema),
    )
    source = SourceFile(path=file.path, size_bytes=file.bytes, add=file.native["add"])
    return len(plan_file(request, source).groups())
