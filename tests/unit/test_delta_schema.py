from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakehand.errors import CorruptLogError, SchemaMismatchError
from lakehand.formats.delta.protocol.arrow_types import from_arrow, to_arrow
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    field_id,
    leaves,
    mapping_mode,
    parse_schema,
    physical_name,
)

MAPPED = {"delta.columnMapping.id": 4, "delta.columnMapping.physicalName": "col-1", "own": [1]}
NESTED = StructType(
    (
        StructField("id", PrimitiveType("long"), nullable=False),
        StructField(
            "s",
            StructType(
                (
                    StructField("x", PrimitiveType("decimal(12,3)"), metadata=MAPPED),
                    StructField("a", ArrayType(PrimitiveType("timestamp"), contains_null=False)),
                )
            ),
        ),
        StructField("m", MapType(PrimitiveType("string"), PrimitiveType("timestamp_ntz"))),
    )
)


def test_a_schema_survives_its_json_form_with_foreign_metadata():
    assert parse_schema(NESTED.to_json()) == NESTED
    assert json.loads(NESTED.to_json())["fields"][1]["type"]["fields"][0]["metadata"] == MAPPED


def test_logical_columns_become_arrow_types():
    schema = to_arrow(NESTED)
    assert not schema.field("id").nullable
    assert schema.field("s").type.field("x").type == pa.decimal128(12, 3)
    assert schema.field("s").type.field("a").type.value_field.type == pa.timestamp("us", tz="UTC")
    assert schema.field("m").type.item_type == pa.timestamp("us")


def test_arrow_schemas_survive_the_way_to_delta_and_back():
    schema = to_arrow(NESTED)
    assert to_arrow(from_arrow(schema)) == schema


@pytest.mark.parametrize(
    ("name", "arrow"),
    [
        ("void", pa.null()),
        ("varchar(20)", pa.string()),
        ("interval year to month", pa.int32()),
        ("interval day to second", pa.int64()),
        ("geometry(OGC:CRS84)", pa.binary()),
        ("variant", pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
    ],
)
def test_rare_types_have_an_arrow_type(name, arrow):
    assert to_arrow(StructType((StructField("c", PrimitiveType(name)),))).field("c").type == arrow


def test_unknown_types_are_refused_by_name():
    with pytest.raises(SchemaMismatchError, match="quaternion"):
        to_arrow(StructType((StructField("c", PrimitiveType("quaternion")),)))


def test_arrow_types_that_delta_cannot_hold_are_refused():
    with pytest.raises(SchemaMismatchError, match="uint64"):
        from_arrow(pa.schema([("c", pa.uint64())]))
    with pytest.raises(SchemaMismatchError, match="ns"):
        from_arrow(pa.schema([("c", pa.timestamp("ns"))]))


@pytest.mark.parametrize("text", ['"long"', "{", '{"type":"struct"}', '{"type":"what"}'])
def test_a_broken_schema_is_a_typed_error(text):
    with pytest.raises(CorruptLogError):
        parse_schema(text)


def test_a_missing_schema_is_a_table_without_columns():
    assert parse_schema(None).fields == ()


def test_physical_names_come_from_the_mapping():
    column = NESTED.fields[1].type.fields[0]
    assert (physical_name(column), field_id(column)) == ("col-1", 4)
    assert physical_name(column, mode=MappingMode.NONE) == "x"
    assert [leaf.physical_path for leaf in leaves(NESTED)][1] == ("s", "col-1")
    assert [leaf.path for leaf in leaves(NESTED)] == [("id",), ("s", "x"), ("s", "a"), ("m",)]


def test_the_mapping_mode_comes_from_the_properties():
    assert mapping_mode({}) is MappingMode.NONE
    assert mapping_mode({"delta.columnMapping.mode": "id"}) is MappingMode.ID
    with pytest.raises(CorruptLogError):
        mapping_mode({"delta.columnMapping.mode": "guess"})


def test_columns_are_found_without_case():
    assert NESTED.find("ID") is NESTED.fields[0]
    assert NESTED.find("none") is None
