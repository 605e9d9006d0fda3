"""The digest must not care about order, and must see every change of a value."""

from __future__ import annotations

import math

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.errors import EngineError
from lakehand.prove import digest as row_digest
from lakehand.prove.digest import Digester, digest

POINT = pa.struct({"x": pa.float64(), "y": pa.float64()})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "alias": pa.string(),
        "amount": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "tags": pa.list_(pa.string()),
        "point": POINT,
        "path": pa.list_(POINT),
        "labels": pa.map_(pa.string(), pa.int32()),
    }
)
ROW = {
    "id": 1,
    "name": "a",
    "alias": "b",
    "amount": None,
    "ratio": 0.0,
    "tags": ["x", None],
    "point": {"x": 1.0, "y": None},
    "path": [{"x": 0.0, "y": 1.0}, None],
    "labels": [("k", 1), ("l", None)],
}


def digest_of(rows: list[dict], *, batch_rows: int = 1000):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return digest(table.to_batches(max_chunksize=batch_rows), SCHEMA)


def row(**changes):
    return {**ROW, **changes}


def test_known_answer_of_this_engine():
    rows = [row(id=number) for number in range(3)]

    result = digest_of(rows)

    assert (result.rows, result.algorithm) == (3, "lakehand-digest-1")
    if result.engine == "duckdb-2.0.0":
        assert result.lanes == (16269350029471983893, 13539477218297454032)


def test_order_and_batches_do_not_matter():
    rows = [row(id=number % 7, ratio=number / 3) for number in range(50)]

    assert digest_of(rows[::-1], batch_rows=3) == digest_of(rows)


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), several=st.integers(0, 6))
@settings(max_examples=20, deadline=None)
def test_rows_count_alike_however_they_come(sizes, several):
    """Batches that are added one by one, and some all at once."""
    rows = [row(id=number) for number in range(sum(sizes))]
    table = pa.Table.from_pylist(rows, schema=SCHEMA).combine_chunks()
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    batches = [
        batch
        for size, end in zip(sizes, ends, strict=True)
        for batch in table.slice(end - size, size).to_batches()
    ]
    with Digester(SCHEMA) as digester:
        digester.add_all(iter(batches[:several]))
        for batch in batches[several:]:
            digester.add(batch)
        assert digester.result() == digest_of(rows)


class LostError(Exception):
    """What a reader raises in the middle."""


def test_what_is_raised_while_rows_come_is_told_and_no_digest_of_a_part_is_made():
    batch = pa.RecordBatch.from_pylist([ROW], schema=SCHEMA)

    def read():
        yield batch
        raise LostError

    with Digester(SCHEMA) as digester, pytest.raises(LostError):
        digester.add_all(read())


def test_rows_are_never_read_as_what_they_are_not():
    numbers, words = pa.record_batch({"a": [1]}), pa.record_batch({"a": ["1"]})
    with Digester(numbers.schema) as digester, pytest.raises(TypeError, match="string"):
        digester.add_all([numbers, words])


def test_no_rows_have_a_digest_too():
    assert digest_of([]).lanes == (0, 0)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("name", None, ""),
        ("name", "a", "a "),
        ("tags", None, []),
        ("tags", [], [None]),
        ("tags", [""], [None]),
        ("tags", ["x", "y"], ["y", "x"]),
        ("point", None, {"x": None, "y": None}),
        ("point", {"x": 1.0, "y": None}, {"x": None, "y": 1.0}),
        ("point", {"x": 0.0, "y": 1.0}, {"x": -0.0, "y": 1.0}),
        ("path", [None], [{"x": None, "y": None}]),
        ("path", [{"x": 0.0, "y": 1.0}], [{"x": -0.0, "y": 1.0}]),
        ("labels", None, []),
        ("labels", [("k", None)], [("k", 0)]),
        ("labels", [("k", 1)], [("l", 1)]),
        ("ratio", 0.0, -0.0),
        ("ratio", math.nan, None),
        ("ratio", math.nan, -math.nan),
        ("amount", None, 0),
    ],
)
def test_a_changed_value_is_seen_in_both_lanes(column, before, after):
    old, new = digest_of([row(**{column: before})]), digest_of([row(**{column: after})])

    assert old.rows == new.rows
    assert old.lanes[0] != new.lanes[0]
    assert old.lanes[1] != new.lanes[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A pair of equal rows replaced by another pair: an XOR would not see it.
        ([row(id=1), row(id=1), row(id=3)], [row(id=2), row(id=2), row(id=3)]),
        ([row(id=1), row(id=1)], [row(id=1), row(id=2)]),
        # Two columns of one type swapped.
        ([row(name="a", alias="b")], [row(name="b", alias="a")]),
        # A value of the first and of the last column moved to another row.
        ([row(id=1, ratio=2.0), row(id=2)], [row(id=2, ratio=2.0), row(id=1)]),
        ([row(id=1, labels=[]), row(id=2)], [row(id=1), row(id=2, labels=[])]),
        # A row dropped and another doubled.
        ([row(id=1), row(id=2), row(id=3)], [row(id=1), row(id=1), row(id=3)]),
    ],
)  # fmt: skip
def test_a_mutation_that_keeps_the_row_count_is_caught(before, after):
    old, new = digest_of(before), digest_of(after)

    assert old.rows == new.rows
    assert old.lanes[0] != new.lanes[0]
    assert old.lanes[1] != new.lanes[1]


def test_names_of_columns_do_not_matter_and_need_no_care():
    plain = pa.table({"a": [1], "b": [{"q": 2}]})
    strange = pa.table({'x" "y': [1], "select": [{"'": 2}]})

    assert digest(plain.to_batches(), plain.schema) == digest(strange.to_batches(), strange.schema)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_any_split_and_order_of_rows_gives_one_digest(numbers, batch_rows):
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    ordered = pa.table({"n": pa.array(sorted(numbers), pa.int64())})

    split = digest(table.to_batches(max_chunksize=batch_rows), table.schema)

    assert split == digest(ordered.to_batches(), table.schema)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_two_digests_are_equal_only_for_equal_bags_of_rows(left, right):
    schema = pa.schema({"n": pa.int64()})

    digests = [
        digest(pa.table({"n": pa.array(numbers, pa.int64())}).to_batches(), schema)
        for numbers in (left, right)
    ]

    assert (digests[0] == digests[1]) == (sorted(left) == sorted(right))


def test_batches_are_gathered_before_they_are_hashed(monkeypatch):
    batch = pa.record_batch({"n": [1]})
    with Digester(batch.schema) as digester:
        for _ in range(10):
            digester.add(batch)

        assert digester._rows == 0
        assert digester.result().rows == 10


def test_an_engine_that_changed_its_hash_is_refused(monkeypatch):
    monkeypatch.setattr(row_digest, "_KNOWN_ANSWERS", {row_digest.ENGINE: (1, 2)})
    row_digest.check_engine.cache_clear()

    with pytest.raises(EngineError, match="hashes differently"):
        row_digest.check_engine()


def test_an_engine_that_confuses_values_is_refused(monkeypatch):
    monkeypatch.setattr(row_digest, "_arguments", lambda value, _kind, _depth: [value])
    row_digest.check_engine.cache_clear()

    with pytest.raises(EngineError, match="alike"):
        row_digest.check_engine()


def test_the_query_that_reads_rows_can_hash_them():
    table = pa.Table.from_pylist([row(id=number, name=str(number)) for number in range(50)], SCHEMA)

    with duckdb.connect() as connection:
        connection.register("rows_read", table)
        query = row_digest.query_with_lanes("SELECT * FROM rows_read", SCHEMA)
        hashed = connection.sql(query).to_arrow_table()

    lanes = tuple(sum(hashed[name].to_pylist()) % 2**64 for name in row_digest.LANES)
    assert lanes == digest(table.to_batches(), SCHEMA).lanes
    assert hashed.column_names == [*table.column_names, *row_digest.LANES]


def test_the_bare_hash_of_the_engine_would_not_do():
    [(plain,)] = duckdb.sql("SELECT hash([]::INT[]) = hash(NULL::INT[])").fetchall()

    assert plain
