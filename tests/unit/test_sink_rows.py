"""Rows are made to fit a table where no value can change, and refused with the difference else."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from lakehand.errors import BackpressureError, ConstraintError, SchemaMismatchError, ValidationError
from lakehand.model.table_head import RowRules
from lakehand.schema.arrow_input import as_reader, batches_of
from lakehand.schema.conform import Conformer
from lakehand.schema.evolution import DiffKind
from lakehand.sink.staging import Buffer

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UTC_MICROS = pa.timestamp("us", tz="UTC")


def conform(values: pa.Array, want: pa.DataType, *, nullable: bool = True) -> pa.Array:
    schema = pa.schema([pa.field("c", want, nullable=nullable)])
    return Conformer(schema, table="memory://t").conform(pa.record_batch({"c": values})).column(0)


@pytest.mark.parametrize(
    ("values", "want", "expected"),
    [
        (pa.array([1], pa.int8()), pa.int64(), [1]),
        (pa.array([255], pa.uint8()), pa.int16(), [255]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array([Decimal("1.25")]), pa.decimal128(10, 4), [Decimal("1.2500")]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array(["a"], pa.string_view()), pa.string(), ["a"]),
        (pa.array(["a", "a"]).dictionary_encode(), pa.string(), ["a", "a"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([[1]], pa.large_list(pa.int8())), pa.list_(pa.int64()), [[1]]),
        (pa.array([None], pa.null()), pa.int32(), [None]),
        (pa.array([0], pa.timestamp("s", tz="+02:00")), UTC_MICROS, [EPOCH]),
        (pa.array([0], pa.timestamp("ns")), pa.timestamp("us"), [EPOCH.replace(tzinfo=None)]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)  # fmt: skip
def test_values_are_widened_where_none_can_change(values, want, expected):
    fitted = conform(values, want)
    assert (fitted.type, fitted.to_pylist()) == (want, expected)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1], pa.uint64()), pa.int64()),
        (pa.array([1], pa.int64()), pa.float64()),
        (pa.array([1.5]), pa.float32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([Decimal("1.25")]), pa.decimal128(3, 1)),
        (pa.array([0], pa.timestamp("us")), UTC_MICROS),
        (pa.array([0], UTC_MICROS), pa.timestamp("us")),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
    ],
    ids=str,
)
def test_values_that_could_change_are_refused(values, want):
    with pytest.raises(SchemaMismatchError) as refused:
        conform(values, want)
    assert len(refused.value.difference) in {1, 2}


def test_nanoseconds_that_would_be_lost_are_refused():
    with pytest.raises(SchemaMismatchError, match="would lose data"):
        conform(pa.array([1], pa.timestamp("ns")), pa.timestamp("us"))


def test_texts_that_are_no_utf8_are_refused():
    offsets = pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0]))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(bytes([255, 254]))])
    with pytest.raises(SchemaMismatchError, match="Invalid UTF8"):
        conform(text, pa.string())


def test_members_of_structs_are_found_by_name_and_filled_with_null():
    want = pa.struct([("b", pa.string()), ("a", pa.int64()), ("c", pa.float64())])
    values = pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int8()), ("b", pa.string())]))
    assert conform(values, want).to_pylist() == [{"b": "x", "a": 1, "c": None}, None]


REQUIRED = pa.field("a", pa.int64(), nullable=False)
STRICT = pa.struct([REQUIRED])
PAIRS = pa.array([[("j", 1)], [("k", None)]], pa.map_(pa.string(), pa.int64())).slice(1)


@pytest.mark.parametrize(
    ("values", "want", "path"),
    [
        (pa.array([1, None]), pa.int64(), "c"),
        (pa.array([{"a": 1}, {"a": None}]), STRICT, "c.a"),
        (pa.array([[{"a": None}]]), pa.list_(pa.field("element", STRICT)), "c.element.a"),
        (pa.array([[1, None]]), pa.list_(REQUIRED.with_name("element")), "c.element"),
        (PAIRS, pa.map_(pa.string(), REQUIRED.with_name("value")), "c.value"),
    ],
)
def test_a_null_that_the_table_forbids_is_found_at_any_depth(values, want, path):
    with pytest.raises(SchemaMismatchError, match="holds a null") as refused:
        conform(values, want, nullable=path != "c")
    assert refused.value.difference == (f"column {path!r} holds a null, which the table forbids",)


def test_members_of_a_null_struct_are_null_as_delta_spark_sees_it():
    with pytest.raises(ConstraintError, match=r"'c\.a' holds a null"):
        conform(pa.array([{"a": 1}, None]), STRICT)


def test_nothing_is_inside_a_null_list_or_a_null_element():
    values = pa.array([[{"a": 1}, None], None])
    wanted = pa.list_(pa.field("element", STRICT))
    assert conform(values, wanted).to_pylist() == [[{"a": 1}, None], None]


TWICE = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])


@pytest.mark.parametrize(
    ("values", "table"),
    [
        (TWICE, {"c": pa.struct([("a", pa.int64())])}),
        (
            pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), TWICE),
            {"c": pa.list_(pa.struct([("a", pa.int64())]))},
        ),
        (TWICE, {"other": pa.int64()}),
    ],
    ids=["struct", "list", "new column"],
)
def test_a_struct_with_a_member_twice_is_refused(values, table):
    conformer = Conformer(pa.schema(list(table.items())), table="memory://t")
    given = pa.record_batch({"c": values})
    assert conformer.diff(given.schema).kind is DiffKind.INCOMPATIBLE
    with pytest.raises(SchemaMismatchError, match=r"c(\.element)?\.a' is duplicated"):
        conformer.conform(given)


def maps(*values, key=None):
    return pa.array(values, pa.map_(key or pa.string(), pa.int64()))


ONE, TWO, TWICE = [("a", 1)], [("a", 1), ("b", 1)], [("a", 1), ("b", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        (maps(TWO, None, TWICE), "c"),
        (maps([(1.5, 1), (0.0, 1), (-0.0, 2)], key=pa.float64()), "c"),
        (maps([({"x": 1}, 1), ({"x": 1}, 2)], key=pa.struct([("x", pa.int64())])), "c"),
        (pa.array([[None, TWO], [TWICE]], pa.list_(maps().type)), "c.item"),
        (pa.array([{"m": TWICE}], pa.struct([("m", maps().type)])), "c.m"),
        (maps(TWICE, TWO).slice(0, 1), "c"),
    ],
)
def test_a_map_with_a_key_twice_is_refused(values, path):
    with pytest.raises(SchemaMismatchError, match=f"'{path}' holds a map that has a key twice"):
        conform(values, values.type)


@pytest.mark.parametrize(
    "values",
    [
        maps(TWO, ONE, None, [], TWO),
        maps(TWICE, TWO, ONE).slice(1),
        maps([({"x": 1}, 1), ({"x": None}, 2)], key=pa.struct([("x", pa.int64())])),
        # What a null hides is there, and is no entry.
        pa.MapArray.from_arrays(
            [0, 1, 3, 4],
            pa.array(["a", "a", "a", "b"]),
            pa.array([0] * 4),
            mask=pa.array([False, True, False]),
        ),
    ],
)
def test_maps_may_have_the_keys_of_others(values):
    assert conform(values, values.type).equals(values)


def test_a_column_may_not_be_missing_if_it_may_not_be_null():
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatchError, match="'b' is missing, and may not be null"):
        Conformer(schema, table="memory://t").conform(pa.record_batch({"A": [1]}))


def test_a_column_with_a_default_is_filled_if_it_is_missing_and_stays_null_if_it_is_null():
    schema = pa.schema([("a", pa.int64()), pa.field("b", pa.int64())])
    conformer = Conformer(schema, table="memory://t", rules=RowRules(defaults={"b": "5"}))
    assert conformer.conform(pa.record_batch({"a": [1]})).to_pylist() == [{"a": 1, "b": 5}]

    nulls = pa.record_batch({"a": [1], "b": pa.nulls(1)})
    assert conformer.conform(nulls).to_pylist() == [{"a": 1, "b": None}]


def test_rows_come_from_tables_frames_and_whatever_hands_out_arrow():
    table = pa.table({"a": [1, 2]})
    frame = pd.DataFrame({"a": [1, 2]}, index=[7, 8])
    for data in (table, table.to_batches()[0], frame, table.to_reader()):
        assert as_reader(data).read_all().to_pydict() == {"a": [1, 2]}
    assert [batch.num_rows for batch in batches_of(table)] == [2]
    with pytest.raises(ValidationError, match="cannot be taken from a dict"):
        as_reader({"a": [1]})


def test_a_buffer_counts_rows_until_they_are_released():
    buffer = Buffer(max_rows=4, max_bytes=10**6)
    batch = pa.record_batch({"a": [1, 2, 3]})
    buffer.put([batch])
    taken = buffer.take()
    with pytest.raises(BackpressureError, match=r"3 rows .* wait to be written"):
        buffer.put([batch])
    buffer.release(taken)
    buffer.put([batch, batch])
    assert (buffer.rows, len(buffer.take())) == (6, 2)
