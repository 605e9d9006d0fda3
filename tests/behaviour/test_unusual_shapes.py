"""Wide, deeply nested, scattered and empty tables, and huge values, through all verbs."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from campaign import shapes
from campaign.shapes import differing_columns
from campaign.verbs import rows_of, schema_of
from lakehand import create_table, open_table
from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.features import MOST_LEVELS

BLOCKS = (0, 1, 2, 3)


def check(path, expected, shape):
    rows = DeltaTable(path).to_pyarrow_table()
    found = Counter(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
    given = zip(expected["id"].to_pylist(), expected["value"].to_pylist(), strict=True)
    assert found == Counter(given)
    assert differing_columns(shape, rows) == []


def run_all_verbs(path, shape):
    """Write rows by lakehand and delta-rs, run each verb, and let delta-rs read after each."""
    partition_by = ["part"] if shape == "scattered" else []
    create_table(path, schema_of(shape), partition_by=partition_by)
    table = open_table(path)
    for block in BLOCKS:
        if block % 2:
            table.append(rows_of([block], shape=shape))
        else:
            write_deltalake(path, rows_of([block], shape=shape), mode="append")
    expected = rows_of(BLOCKS, shape=shape)

    table.compact(min_files=2)
    check(path, expected, shape)
    table.append(rows_of([1], shape=shape))
    assert table.deduplicate(key=["id"]).duplicates_removed == 40
    check(path, expected, shape)
    table.upsert(rows_of([2, 4], 77, shape=shape), key=["id"])
    table.delete(where="id >= 3000 AND id < 4000")
    left = {row["id"]: row for row in rows_of([0, 1], shape=None).to_pylist()}
    left |= {row["id"]: row for row in rows_of([2, 4], 77, shape=None).to_pylist()}
    check(path, pa_rows(left.values()), shape)
    table.cluster(by=["id"], full=True)
    table.checkpoint()
    check(path, pa_rows(left.values()), shape)
    assert not table.verify(deep=True).findings
    table.vacuum()
    check(path, pa_rows(left.values()), shape)


def pa_rows(rows):
    return pa.Table.from_pylist(list(rows), schema=schema_of())


@pytest.mark.parametrize("shape", ["wide", "deep", "scattered", "long"])
def test_all_verbs_keep_the_rows_of_unusual_tables(tmp_path, monkeypatch, shape):
    monkeypatch.setattr(shapes, "WIDE_COLUMNS", 300)
    monkeypatch.setattr(shapes, "LONG_BYTES", 3_000_000)
    run_all_verbs(tmp_path / "t", shape)


@pytest.mark.soak
def test_all_verbs_keep_rows_of_two_thousand_columns(tmp_path):
    run_all_verbs(tmp_path / "t", "wide")


@pytest.mark.soak
def test_all_verbs_keep_rows_of_a_hundred_megabytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shapes, "LONG_BYTES", 100_000_000)
    run_all_verbs(tmp_path / "t", "long")


def test_tables_without_rows_stay_sound_through_all_verbs(tmp_path):
    path = tmp_path / "t"
    create_table(path, schema_of())
    table = open_table(path)
    assert table.compact().outcome == "nothing_to_do"
    table.append(rows_of([]))
    table.append(rows_of([0]))
    table.append(rows_of([1]))
    table.delete(where="id >= 0")
    empty = rows_of([])

    table.compact(min_files=2)
    table.cluster(by=["id"], full=True)
    assert table.deduplicate(exact=True).duplicates_removed == 0
    table.upsert(empty, key=["id"])
    table.checkpoint()
    table.vacuum()

    assert not table.verify(deep=True).findings
    assert table.to_arrow().num_rows == 0
    check(path, empty, None)
    table.append(rows_of([2]))
    check(path, rows_of([2]), None)


@pytest.mark.parametrize("grow", [pa.list_, lambda kind: pa.map_(pa.string(), kind)])
def test_types_nested_too_deeply_are_refused_before_anything_is_written(tmp_path, grow):
    kind = pa.int64()
    for _ in range(MOST_LEVELS + 1):
        kind = grow(kind)
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1], "deep": pa.array([None], kind)}))
    table, files = open_table(path), sorted(path.rglob("*"))
    rows = pa.table({"id": [2], "deep": pa.array([None], kind)})
    for call in (table.compact, lambda: table.append(rows), lambda: table.delete(where="id = 1")):
        with pytest.raises(RefusedError, match=f"deeper than {MOST_LEVELS} levels"):
            call()
    assert sorted(path.rglob("*")) == files


def test_exact_duplicates_of_deeply_nested_rows_are_refused(tmp_path):
    path = tmp_path / "t"
    create_table(path, schema_of("deep"))
    table = open_table(path)
    table.append(rows_of([0], shape="deep"))
    with pytest.raises(RefusedError, match="name key columns"):
        table.deduplicate(exact=True)


def test_a_table_that_nobody_could_write_to_is_not_created(tmp_path):
    kind = pa.int64()
    for _ in range(MOST_LEVELS + 1):
        kind = pa.struct({"a": kind})
    with pytest.raises(RefusedError, match=f"deeper than {MOST_LEVELS} levels"):
        create_table(tmp_path / "t", pa.schema({"deep": kind}))
    assert not list((tmp_path).rglob("*.json"))
