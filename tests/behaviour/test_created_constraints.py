"""CHECK constraints that a table is created with, as properties."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehand
from lakehand.errors import ConstraintError, RefusedError, ValidationError

SCHEMA = pa.schema({"id": pa.int64()})


def create(path, **constraints):
    properties = {f"delta.constraints.{name}": text for name, text in constraints.items()}
    return lakehand.create_table(path, SCHEMA, properties=properties)


def test_a_constraint_holds_from_the_first_row_on(tmp_path):
    table = create(tmp_path / "t", positive="id > 0")
    table.append(pa.table({"id": [1]}))
    with pytest.raises(ConstraintError, match="positive"):
        table.append(pa.table({"id": [2, -1]}))
    with pytest.raises(Exception, match="failed validation"):
        write_deltalake(tmp_path / "t", pa.table({"id": [-1]}), mode="append")
    assert table.to_arrow()["id"].to_pylist() == [1]
    first = (tmp_path / "t/_delta_log/00000000000000000000.json").read_text()
    (protocol,) = [
        line["protocol"] for line in map(json.loads, first.splitlines()) if "protocol" in line
    ]
    assert "checkConstraints" in protocol["writerFeatures"]


def test_the_prefix_has_any_case_as_in_delta_spark(tmp_path):
    table = lakehand.create_table(
        tmp_path / "t", SCHEMA, properties={"DELTA.Constraints.positive": "id > 0"}
    )
    with pytest.raises(ConstraintError, match="positive"):
        table.append(pa.table({"id": [-1]}))
    with pytest.raises(RefusedError, match="existing rows would have to be checked"):
        table.set_properties({"Delta.CONSTRAINTS.small": "id < 9"})


@pytest.mark.parametrize("type_", [pa.large_string(), pa.string_view()], ids=str)
def test_columns_are_those_of_the_table_not_of_the_given_schema(tmp_path, type_):
    schema = pa.schema({"name": type_})
    properties = {"delta.constraints.short": "length(name) < 3"}
    table = lakehand.create_table(tmp_path / "t", schema, properties=properties)
    with pytest.raises(ConstraintError, match="short"):
        table.append(pa.table({"name": ["long"]}))


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a", "idd > 0", RefusedError),
        ("a", "", RefusedError),
        ("a", "id >", RefusedError),
        ("", "id > 0", ValidationError),
    ],
)
def test_one_that_no_row_could_be_checked_by_creates_no_table(tmp_path, name, text, error):
    with pytest.raises(error) as caught:
        create(tmp_path / "t", **{name: text})
    assert error is ValidationError or "cannot be created: its constraint" in str(caught.value)
    assert not (tmp_path / "t").exists()
