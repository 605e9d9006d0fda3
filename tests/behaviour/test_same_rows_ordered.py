"""Any table, of any types, in any order: the same rows, and no file that says what is not true."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.model.order import Order, Term
from support.compactions import tasks_inline
from support.exact_values import exact
from support.plain_reader import live_adds, plain_rows, rows_of_file
from support.random_tables import TRAITS, make_random_table
from support.true_statistics import assert_true_statistics

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
CURVES = st.sampled_from(["linear", "linear", "hilbert", "zorder"])
TARGETS = st.sampled_from([1_500, 4_000, 2**27])
#: In one task, or in many.
SORT_TASK_BYTES = st.sampled_from([1, 2**30])
VERBS = st.sampled_from(["cluster", "cluster", "compact"])


def drawn_order(data, table, curve):
    """Return an order that the table can have."""
    names = {f"c {place}.é": kind for place, kind in enumerate(table.traits.types)}
    paths = [path for path, kind in _leaves(names.items()) if not pat.is_nested(kind)]
    assume(paths)
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=6, unique=True))
    flags = st.booleans()
    terms = [
        Term(
            path=path,
            descending=curve == "linear" and data.draw(flags),
            nulls_first=data.draw(flags),
        )
        for path in chosen
    ]
    return Order(terms=tuple(terms), curve=curve)


def _leaves(fields, above=()):
    for name, kind in fields:
        yield (*above, name), kind
        if pat.is_struct(kind):
            yield from _leaves(((part.name, part.type) for part in kind), (*above, name))


def put_in_order(path, verb, order, **options):
    eager = {"min_files": 2, "deleted_row_ratio": 0.0, **options}
    with tasks_inline():
        table = lakehand.open_table(path, **eager)
        if verb == "compact":
            return table.compact(sort_by=order.texts)
        return table.cluster(by=order.texts, curve=order.curve)


def assert_sorting_is_true(path, *, terms):
    """Hold every row group against the order that it says it is in, by so many columns."""
    file = pq.ParquetFile(path)
    paths = [file.schema.column(number).path for number in range(len(file.schema))]
    for number in range(file.num_row_groups):
        rows = file.read_row_group(number)
        sorting = file.metadata.row_group(number).sorting_columns
        assert len(sorting) == terms
        keys = [_keys(_leaf(rows, paths[column.column_index]), column) for column in sorting]
        for one, other in pairwise(zip(*keys, strict=True)):
            assert one <= other, (path, number, sorting)


def _leaf(rows, path):
    """Return the values of a leaf; names in these tables have a dot, and members have none."""
    name = next(name for name in rows.column_names if path == name or path.startswith(name + "."))
    column = rows[name].combine_chunks()
    for part in path[len(name) + 1 :].split(".") if path != name else ():
        column = pa.compute.struct_field(column, part)
    return column


def _keys(column, sorting):
    """Return keys that compare as the order of `sorting` asks for."""
    values = [None if value is None else _plain(value, column.type) for value in exact(column)]
    known = sorted({value for value in values if value is not None}, reverse=sorting.descending)
    ranks = {value: rank for rank, value in enumerate(known)}
    null = -1 if sorting.nulls_first else len(known)
    return [null if value is None else ranks[value] for value in values]


def _plain(value, kind):
    if pat.is_floating(kind):
        bits, number = (np.int64, np.float64) if kind == pa.float64() else (np.int32, np.float32)
        found = float(np.array([value], bits).view(number)[0])
        # NaN is one value, above all others, and there is one zero.
        return (1, 0.0) if math.isnan(found) else (0, found + 0.0)
    return value.encode() if isinstance(value, str) else value


def assert_same_rows_in_order(data, traits, curve, verb, **sizes):
    curve = "linear" if verb == "compact" else curve
    with tempfile.TemporaryDirectory() as directory:
        table = make_random_table(Path(directory) / "t", traits)
        order = drawn_order(data, table, curve)
        expected = Counter(table.rows)
        before = {add["path"] for add in live_adds(table.path)}

        put_in_order(table.path, verb, order, **sizes)

        assert plain_rows(table) == expected
        is_legacy = "org.apache.spark.legacyDateTime" in traits.markers
        terms = len(order.terms) if curve == "linear" else 0
        for add in live_adds(table.path):
            if add["path"] not in before:
                rows = rows_of_file(table, add)
                assert_true_statistics(
                    add["stats"], table.columns, rows, table.mode, is_legacy=is_legacy
                )
                assert_sorting_is_true(table.path / add["path"], terms=terms)
        if verb == "cluster":
            # Files of a target of some hundred bytes can come out smaller than was estimated, and
            # are then put together once.
            put_in_order(table.path, verb, order, **sizes)
            assert put_in_order(table.path, verb, order, **sizes).outcome == "nothing_to_do"
            assert plain_rows(table) == expected


DRAWN = given(
    data=st.data(),
    traits=TRAITS,
    curve=CURVES,
    verb=VERBS,
    target_file_bytes=TARGETS,
    sort_task_bytes=SORT_TASK_BYTES,
)


@settings(max_examples=15, suppress_health_check=SLOW)
@DRAWN
def test_an_order_keeps_every_row_of_any_table(**drawn):
    assert_same_rows_in_order(**drawn)


@pytest.mark.soak
@settings(max_examples=500, suppress_health_check=SLOW)
@DRAWN
def test_an_order_keeps_every_row_of_very_many_tables(**drawn):
    assert_same_rows_in_order(**drawn)
