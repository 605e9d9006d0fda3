"""What keeps rows from fitting a table is one value: nothing, new columns, wider types, or a no."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehand.schema.evolution import DiffKind, diff_schemas

TABLE = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("ratio", pa.float32()),
        ("s", pa.struct([("a", pa.int16()), ("b", pa.string())])),
        ("items", pa.list_(pa.field("element", pa.struct([("n", pa.int8())])))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def diff(*columns: tuple[str, pa.DataType], **options):
    return diff_schemas(pa.schema(columns), TABLE, **options)


@pytest.mark.parametrize(
    "column",
    [
        ("id", pa.int8()),
        ("ID", pa.int32()),
        ("name", pa.large_string()),
        ("name", pa.null()),
        ("name", pa.dictionary(pa.int8(), pa.string())),
        ("price", pa.decimal128(4, 1)),
        ("s", pa.struct([("b", pa.string())])),
        ("items", pa.large_list(pa.struct([("n", pa.int8())]))),
    ],
    ids=str,
)
def test_schema_diff_identical(column):
    found = diff(column)
    assert (found.kind, found.evolved) == (DiffKind.IDENTICAL, TABLE)


def test_schema_diff_new_columns_at_any_depth():
    found = diff(
        ("id", pa.int32()),
        ("more", pa.dictionary(pa.int8(), pa.string())),
        ("s", pa.struct([pa.field("c", pa.int8(), nullable=False)])),
        ("items", pa.list_(pa.struct([("n", pa.int8()), ("k", pa.date32())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    )
    assert found.kind is DiffKind.NEW_COLUMNS
    assert {column.path for column in found.columns} == {"more", "s.c", "items.element.k"}
    assert found.evolved.field("more") == pa.field("more", pa.string())
    assert found.evolved.field("s").type.names == ["a", "b", "c"]
    assert found.evolved.field("s").type.field("c").nullable


@pytest.mark.parametrize(
    ("column", "wider"),
    [
        (("id", pa.int64()), pa.int64()),
        (("id", pa.uint32()), pa.int64()),
        (("ratio", pa.float64()), pa.float64()),
        (("price", pa.decimal128(8, 2)), pa.decimal128(8, 2)),
        (("price", pa.decimal128(6, 4)), pa.decimal128(8, 4)),
        (("m", pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_schema_diff_type_widening(column, wider):
    found = diff(column)
    assert found.kind is DiffKind.TYPE_WIDENING
    assert found.evolved.field(column[0]).type == wider


def test_schema_diff_mixed():
    assert diff(("id", pa.int64()), ("more", pa.int8())).kind is DiffKind.MIXED


@pytest.mark.parametrize(
    "column",
    [
        ("id", pa.string()),
        ("id", pa.float64()),
        ("id", pa.uint64()),
        ("name", pa.int64()),
        ("price", pa.decimal128(38, 37)),
        ("s", pa.int32()),
        ("more", pa.null()),
        ("more", pa.struct([("x", pa.list_(pa.null()))])),
    ],
    ids=str,
)
def test_schema_diff_incompatible(column):
    assert diff(column).kind is DiffKind.INCOMPATIBLE


def test_a_column_on_which_others_depend_keeps_its_type():
    found = diff(("id", pa.int64()), fixed=["id"])
    assert found.kind is DiffKind.INCOMPATIBLE
    assert "others of its parts depend" in found.render()


def test_a_column_that_the_table_fills_may_be_missing():
    table = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.int8())])
    rows = pa.schema([("b", pa.int8())])
    assert diff_schemas(rows, table).kind is DiffKind.INCOMPATIBLE
    assert diff_schemas(rows, table, filled=["a"]).kind is DiffKind.IDENTICAL


def test_the_difference_is_shown_column_by_column():
    found = diff(("id", pa.int64()), ("name", pa.int8()), ("more", pa.int8()))
    assert found.render().splitlines() == [
        "  ~ column 'id' is int64, and the table has int32",
        "  ! column 'name' is int8, and the table has string",
        "  + column 'more' is not in the table: int8",
    ]
