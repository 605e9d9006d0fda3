"""What a table and its files say about the order of rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from lakehand.formats.delta.protocol.clustering import (
    CLUSTERING_DOMAIN,
    clustering_columns,
    clustering_names,
    order_mark,
    order_marks,
    shared_cube,
)
from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
)
from lakehand.model.order import Order, Term

PHYSICAL = "delta.columnMapping.physicalName"

TAGS = {"ZCUBE_ID": "1", "ZCUBE_ZORDER_BY": '["a"]'}


def declared(*columns):
    return {CLUSTERING_DOMAIN: json.dumps({"clusteringColumns": columns})}


def part_of(provider="liquid", **tags):
    return {"clusteringProvider": provider, "tags": {**TAGS, **tags}}


def test_paths_and_bare_names_are_both_read():
    assert clustering_columns(declared(["s", "x"], "abc")) == (("s", "x"), ("abc",))


@pytest.mark.parametrize("domains", [{}, declared(), {CLUSTERING_DOMAIN: "{}"}])
def test_a_table_may_be_clustered_by_nothing(domains):
    assert clustering_columns(domains) == ()


def test_names_are_those_that_users_know():
    number = PrimitiveType("long")
    mapped = {"delta.columnMapping.physicalName": "col-1"}
    inner = StructType((StructField("x.y", number),))
    schema = StructType((StructField("a", number, metadata=mapped), StructField("s", inner)))

    names = clustering_names(
        declared(["col-1"], ["s", "x.y"], ["gone"]), schema, mode=MappingMode.NAME
    )

    assert names == ("a", "s.`x.y`")


def test_a_file_of_one_cube_is_part_of_it():
    assert shared_cube([part_of(INSERTION_TIME="5"), part_of()]) == {
        "clusteringProvider": "liquid",
        "tags": TAGS,
    }


@pytest.mark.parametrize(
    "other",
    [{}, part_of(ZCUBE_ID="2"), part_of(ZCUBE_ZORDER_BY='["b"]'), part_of("other"), {"tags": TAGS}],
)
def test_a_file_of_several_cubes_is_part_of_none(other):
    assert shared_cube([part_of(), other]) == {}
    assert shared_cube([other, part_of()]) == {}


SCHEMA = StructType(
    (
        StructField("a", PrimitiveType("long"), metadata={PHYSICAL: "col-1"}),
        StructField("b", PrimitiveType("string"), metadata={PHYSICAL: "col-2"}),
    )
)
HILBERT = Order(terms=(Term(path=("a",)), Term(path=("b",))), curve="hilbert")


def mark(order=HILBERT, *, unit="u", declared=(("col-1",), ("col-2",))):
    return order_mark(order, unit, SCHEMA, mode=MappingMode.NAME, declared=declared)


def read_marks(*entries, order=HILBERT):
    tags = [list((entry.get("tags") or {}).items()) for entry in entries]
    column = pa.array(tags, pa.map_(pa.string(), pa.string()))
    found = order_marks(column, order, SCHEMA, mode=MappingMode.NAME)
    return found["unit"].to_pylist(), found["is_asked"].to_pylist()


def test_a_file_in_the_declared_order_says_so_in_words_of_others_too():
    found = mark()

    assert found["clusteringProvider"] == "liquid"
    assert found["tags"]["ZCUBE_ID"] == found["tags"]["LAKEHAND_UNIT"] == "u"
    assert found["tags"]["ZCUBE_ZORDER_BY"] == '["a","b"]'
    assert found["tags"]["LAKEHAND_ORDER"] == "hilbert(col-1, col-2)"


@pytest.mark.parametrize(
    "changes",
    [
        {"declared": ()},
        {"declared": (("col-2",), ("col-1",))},
        {"order": replace(HILBERT, curve="zorder")},
    ],
)
def test_a_file_in_another_order_than_the_declared_one_says_nothing_to_others(changes):
    found = mark(**changes)

    assert set(found) == {"tags"}
    assert set(found["tags"]) == {"LAKEHAND_ORDER", "LAKEHAND_UNIT"}


def test_files_are_known_by_unit_and_order_whoever_put_them_in_order():
    by_spark = {"tags": {"ZCUBE_ID": "c", "ZCUBE_ZORDER_BY": '["a","b"]'}}
    other = mark(replace(HILBERT, curve="zorder"), unit="v")

    assert read_marks(mark(), by_spark, other, {}, {"tags": None}) == (
        ["u", "c", "v", None, None],
        [True, True, False, False, False],
    )
    zorder = replace(HILBERT, curve="zorder")
    assert read_marks(mark(), by_spark, other, order=zorder)[1] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "spelled"),
    [("_a1", "_a1"), ("a b", "`a b`"), ("a.b", "`a.b`"), ("1a", "`1a`"), ("ü", "`ü`")],
)
def test_columns_of_a_cube_are_spelled_as_delta_spark_spells_them(name, spelled):
    number = PrimitiveType("long")
    schema = StructType((StructField("s", StructType((StructField(name, number),))),))
    order = Order(terms=(Term(path=("s", name)),), curve="hilbert")
    paths = [("s", name)]

    found = order_mark(order, "u", schema, mode=MappingMode.NONE, declared=paths)

    assert json.loads(found["tags"]["ZCUBE_ZORDER_BY"]) == [f"s.{spelled}"]
