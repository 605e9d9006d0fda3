"""Upserts into Lance tables: every type as payload and as key, indices, row ids, refusals."""

from __future__ import annotations

import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import PredicateError, RefusedError, ValidationError
from support.formats import open_here, tasks_inline
from support.lance_tables import add_indices, make_lance, rows_of_every_kind, some_rows

WIDE = pa.array([1, 2, None, 3]).cast(pa.decimal256(50, 3))
KEYS = {
    "dictionary": pa.array(["a", "b", None, "c"]).dictionary_encode(),
    "duration": pa.array([1, 2, None, 1001], pa.duration("ns")),
    "time": pa.array([1, 2, None, 1001], pa.time64("ns")),
    "instant": pa.array([1, 2, None, 1001], pa.timestamp("ns", tz="UTC")),
    "unsigned": pa.array([2**64 - 1, 2**63, None, 0], pa.uint64()),
    "large": pa.array(["a", "b", None, "c"], pa.large_string()),
    "view": pa.array(["a", "b", None, "c"], pa.string_view()),
    "fixed": pa.array([b"ab", b"cd", None, b"ef"], pa.binary(2)),
    "uuid": pa.array([uuid.UUID(int=number).bytes for number in range(4)], pa.uuid()),
    "decimal": pa.array([1, 2, None, 3]).cast(pa.decimal128(30, 3)),
}


@pytest.fixture(autouse=True)
def inline():
    with tasks_inline():
        yield


def numbered(rows, start=0):
    return rows.add_column(0, "id", pa.array(range(start, start + rows.num_rows), pa.int64()))


def written(path, *tables, **options):
    for table in tables:
        lance.write_dataset(table, path, mode="append", **options)
    return str(path)


def test_rows_of_every_type_are_replaced_and_added(tmp_path):
    rows = rows_of_every_kind().append_column("wide", WIDE)
    path = written(tmp_path / "t", numbered(rows), numbered(rows, 4))
    given = numbered(rows.take(pa.array([3, 2, 1, 0])), 2)

    report = open_here(path).upsert(given, key=["id"])

    expected = pa.concat_tables([numbered(rows).slice(0, 2), given, numbered(rows, 4).slice(2)])
    assert (report.rows_updated, report.rows_inserted) == (4, 0)
    assert lance.dataset(path).to_table().sort_by("id").to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("form", ["_op", "__weight"])
def test_changelogs_with_columns_that_duckdb_does_not_know_are_taken(tmp_path, form):
    rows = rows_of_every_kind().append_column("wide", WIDE)
    path = written(tmp_path / "t", numbered(rows))
    words = pa.array(["U", "D", "U", "I"]) if form == "_op" else pa.array([1, -1, 1, 1])
    open_here(path).upsert(numbered(rows).append_column(form, words), key=["id"])
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 2, 3]


@pytest.mark.parametrize("kind", list(KEYS))
def test_rows_are_found_by_keys_of_every_type_that_has_an_order(tmp_path, kind):
    rows = numbered(pa.table({"key": KEYS[kind]}))
    path = written(tmp_path / "t", rows)
    given = numbered(pa.table({"key": KEYS[kind].slice(1, 2)}), 10)

    assert open_here(path).upsert(given, key=["key"]).rows_updated == 2
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 3, 10, 11]
    open_here(path).delete_keys(given.select(["key"]), key=["key"])
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 3]


@pytest.mark.parametrize("column", ["half", "halves", "nested", "lists", "vector", "brief", "wide"])
def test_keys_that_tell_no_rows_apart_are_refused_by_name(tmp_path, column):
    rows = numbered(rows_of_every_kind().append_column("wide", WIDE))
    path = written(tmp_path / "t", rows)
    with pytest.raises(RefusedError, match=f"'{column}'"):
        open_here(path).upsert(rows.slice(0, 1), key=[column])
    assert lance.dataset(path).version == 1


def test_conditions_on_half_floats_are_computed_and_on_long_decimals_refused(tmp_path):
    rows = numbered(rows_of_every_kind().append_column("wide", WIDE))
    path = written(tmp_path / "t", rows)
    assert open_here(path).to_arrow(where="half > 1")["id"].to_pylist() == [0, 2]
    assert open_here(path).delete(where="half IS NULL").rows_removed == 1
    with pytest.raises(PredicateError, match=r"'wide'.*decimal256"):
        open_here(path).to_arrow(where="wide > 1")


def test_rows_are_not_ordered_by_long_decimals(tmp_path):
    rows = numbered(rows_of_every_kind().append_column("wide", WIDE))
    path = written(tmp_path / "t", rows, rows)
    with pytest.raises(ValidationError, match="'wide'"):
        open_here(path).cluster(by=["wide"])


def test_decimals_of_mapped_files_are_appended(tmp_path):
    rows = pa.table({"a": pa.array([1], pa.int64()), "b": pa.array([1]).cast(pa.decimal128(30, 2))})
    with pa.OSFile(str(tmp_path / "rows"), "wb") as file, pa.ipc.new_file(file, rows.schema) as out:
        out.write_table(rows)
    with pa.memory_map(str(tmp_path / "rows")) as file:
        mapped = pa.ipc.open_file(file).read_all()
        table = lakehand.create_table(tmp_path / "t", rows.schema, format="lance")
        table.append(mapped)
    assert lance.dataset(tmp_path / "t").to_table() == rows


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_searches_find_new_rows_and_old_ones_no_more(tmp_path, stable_row_ids):
    path = make_lance(tmp_path / "t", stable_row_ids=stable_row_ids)
    add_indices(path)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(np.full(8, 50, np.float32)), 8)
    row = some_rows(3, 1).set_column(1, "word", pa.array(["zebra common"]))
    open_here(path).upsert(row.set_column(2, "vector", vector), key=["id"])

    dataset = lance.dataset(path)
    words = dataset.to_table(columns=["id", "_score"], full_text_query="zebra")["id"].to_pylist()
    old = dataset.to_table(columns=["id", "_score"], full_text_query="word3")["id"].to_pylist()
    near = {"column": "vector", "q": np.full(8, 50, np.float32), "k": 1}
    found = dataset.to_table(columns=["id", "_distance"], nearest=near)["id"].to_pylist()
    assert (words, 3 in old, found) == ([3], False, [3])
    assert dataset.to_table(filter="id = 3").num_rows == 1


def test_rows_that_are_not_replaced_keep_their_ids(tmp_path):
    path = make_lance(tmp_path / "t", stable_row_ids=True)
    before = lance.dataset(path).scanner(columns=["id"], with_row_id=True).to_table()
    open_here(path).upsert(some_rows(3, 2), key=["id"])
    after = lance.dataset(path).scanner(columns=["id"], with_row_id=True).to_table()
    old, new = (dict(zip(*table.to_pydict().values(), strict=True)) for table in (before, after))
    assert {n: i for n, i in new.items() if n not in (3, 4)} == {
        n: i for n, i in old.items() if n not in (3, 4)
    }
    assert len(set(new.values())) == len(new) == len(old)
