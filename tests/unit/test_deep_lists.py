"""Hashing lists level by level, where DuckDB cannot bind the lambdas, gives the same digests."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.prove import deep_lists
from lakehand.prove.digest import Digester, digest
from support.exact_values import arrow_array
from support.random_values import TYPES, Values

NESTINGS = {
    "struct": (lambda kind: pa.struct({"a": kind}), lambda value: {"a": value}),
    "list": (pa.list_, lambda value: [value]),
    "large list": (pa.large_list, lambda value: [value]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "map by structs": (
        lambda kind: pa.map_(pa.struct({"a": kind}), pa.int32()),
        lambda value: [({"a": value}, 1)],
    ),
}


def nested(kind: pa.DataType, value: object, *levels: str) -> pa.Array:
    """Return a null, `value`, and an empty value inside of it, in types around `kind`."""
    for level in levels:
        grow, hold = NESTINGS[level]
        kind, value = grow(kind), hold(value)
    return pa.array([None, value], kind)


@given(kind=TYPES, lists=st.integers(0, 4), seed=st.integers(0))
@settings(max_examples=60, deadline=None)
def test_digests_do_not_depend_on_how_lists_are_hashed(kind, lists, seed):
    values = Values(random.Random(seed))
    column = arrow_array([values.of(kind) for _ in range(30)], kind)
    for grow in [pa.list_, pa.large_list, pa.list_, pa.list_][:lists]:
        ends = [0, 3, 3, *range(3, len(column) + 1)]
        column = pa.ListArray.from_arrays(ends, column).cast(grow(column.type))
    rows = pa.table({"value": column, "number": pa.array(range(len(column)))})
    batches = [*rows.slice(5, 9).to_batches(), *rows.slice(0, 2).to_batches()]

    expected = digest(batches, rows.schema)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deep_lists, "_MOST_LAMBDAS", 0)
        assert digest(batches, rows.schema) == expected
        with Digester(rows.schema) as digester:
            for batch in batches:
                digester.add(batch)
            assert digester.result() == expected


@pytest.mark.parametrize("level", sorted(NESTINGS))
def test_types_nested_twenty_deep_are_hashed_soon_and_every_value_counts(level):
    started = time.perf_counter()

    columns = [nested(pa.float64(), value, *[level] * 20) for value in (0.0, -0.0, None)]
    if level == "map by structs":  # A key is never null.
        columns.pop()
    found = {digest(rows.to_batches(), rows.schema).lanes for rows in map(table_of, columns)}

    assert len(found) == len(columns)
    assert time.perf_counter() - started < 10


def table_of(column: pa.Array) -> pa.Table:
    return pa.table({"value": column})
