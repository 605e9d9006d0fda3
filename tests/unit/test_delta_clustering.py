"""What a table and its files say about the order of rows."""

from __future__ import annotations

import json

import pytest

from lakehand.formats.delta.protocol.clustering import (
    CLUSTERING_DOMAIN,
    clustering_columns,
    clustering_names,
    shared_cube,
)
from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    PrimitiveType,
    StructField,
    StructType,
)

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
