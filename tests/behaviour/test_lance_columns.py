"""Columns that Lance tables take on with new rows."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lakehand.errors import RefusedError, SchemaMismatchError
from support.formats import open_here, tasks_inline
from support.lance_tables import (
    add_indices,
    make_lance,
    rows_of,
    searches,
    some_rows,
    unknown_files,
)


@pytest.fixture(autouse=True)
def inline():
    with tasks_inline():
        yield


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_indices_and_row_ids_are_kept(tmp_path, stable_row_ids):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    add_indices(path)
    found = searches(path)
    ids = lance.dataset(path).scanner(columns=["id"], with_row_id=True).to_table()

    rows = some_rows(5000, 2).append_column("halves", pa.array([0.5, None], pa.float16()))
    open_here(path).append(rows, schema_evolution=True)

    assert searches(path)["scalar"].keys() == {*found["scalar"], "halves"}
    assert searches(path)["scalar"]["id"] == found["scalar"]["id"]
    after = lance.dataset(path).scanner(columns=["id"], with_row_id=True).to_table()
    assert after.slice(0, ids.num_rows) == ids
    assert rows_of(path)["halves"].to_pylist()[-3:] == [None, 0.5, None]


def test_a_new_column_does_not_show_what_a_dropped_one_held(tmp_path):
    path = make_lance(tmp_path / "t", fragments=2)
    lance.dataset(path).add_columns({"secret": "'old'"})
    lance.dataset(path).drop_columns(["secret"])
    rows = some_rows(5000, 1).append_column("fresh", pa.array(["new"]))
    open_here(path).append(rows, schema_evolution=True)
    assert set(rows_of(path)["fresh"].to_pylist()) == {None, "new"}
    assert rows_of(path)["fresh"].to_pylist()[-1] == "new"


@pytest.mark.parametrize(
    "column",
    [pa.array([{"a": 1, "b": 2}]), pa.array(["text"])],
    ids=["a member of a struct", "another type"],
)
def test_a_column_that_is_there_does_not_change(tmp_path, column):
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1], "s": pa.array([{"a": 1}])}), path)
    with pytest.raises((RefusedError, SchemaMismatchError), match="'s"):
        open_here(path).append(pa.table({"id": [2], "s": column}), schema_evolution=True)
    assert lance.dataset(path).version == 1
    assert unknown_files(path) == set()


def test_an_overwrite_brings_no_columns(tmp_path):
    path = make_lance(tmp_path / "t", fragments=1)
    rows = some_rows(0, 2).append_column("more", pa.array(["a", "b"]))
    with pytest.raises(RefusedError, match="new columns"):
        open_here(path).overwrite(rows, schema_evolution=True)
    assert (rows_of(path).num_rows, unknown_files(path)) == (64, set())
