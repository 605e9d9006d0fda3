"""Wide, deeply nested, scattered and empty tables, and huge values, through all verbs."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from campaign import shapes
from campaign.shapes import differing_columns
from campaign.verbs import rows_of, schema_of
from lakehand import create_table, open_table
from lakehand.errors import ProofError, RefusedError, TableExistsError
from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.formats.delta.protocol.features import MOST_ARROW_LEVELS, MOST_PARQUET_LEVELS

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


LISTS = MOST_PARQUET_LEVELS // 2
MAPS = MOST_ARROW_LEVELS // 2
STRUCTS = MOST_ARROW_LEVELS


def nested(pattern: str) -> tuple[pa.DataType, object]:
    """Return a type of lists, structs and maps in each other, and a value of it."""
    kind, value = pa.int64(), 7
    for letter in pattern:
        kind, value = {
            "l": (pa.list_(kind), [value]),
            "s": (pa.struct({"a": kind}), {"a": value}),
            "m": (pa.map_(pa.string(), kind), [("k", value)]),
        }[letter]
    return kind, value


@pytest.mark.parametrize(
    "pattern",
    [
        "l" * LISTS,
        "m" * MAPS,
        "lm" * (MOST_ARROW_LEVELS // 3),
        "sm" * (MOST_ARROW_LEVELS // 3),
        "ls" * (MOST_ARROW_LEVELS // 2),
    ],
)
def test_the_deepest_types_that_are_accepted_pass_all_verbs(tmp_path, pattern):
    kind, value = nested(pattern)
    schema = pa.schema({"id": pa.int64(), "deep": kind})

    def rows(*ids: int) -> pa.Table:
        values = [None if i % 3 == 0 else value for i in ids]
        return pa.table({"id": ids, "deep": pa.array(values, kind)}, schema=schema)

    create_table(tmp_path / "t", schema)
    table = open_table(tmp_path / "t")
    for ids in ((1, 2, 3), (4, 5, 6), (6, 7)):
        table.append(rows(*ids))
    table.compact(min_files=2)
    table.append(rows(8))
    table.deduplicate(key=["id"])
    table.upsert(rows(1, 9), key=["id"])
    table.delete(where="id = 2")
    table.cluster(by=["id"], full=True)
    table.checkpoint()

    assert not table.verify(deep=True).findings
    expected = rows(1, 3, 4, 5, 6, 7, 8, 9)
    assert table.to_arrow().sort_by("id").combine_chunks() == expected


@pytest.mark.parametrize(
    "pattern", ["l" * (LISTS + 1), "m" * (MAPS + 1), "s" * (STRUCTS + 1), "ls" * 20 + "l" * 20]
)
def test_types_nested_too_deeply_are_refused_before_anything_is_written(tmp_path, pattern):
    kind, _ = nested(pattern)
    path = tmp_path / "t"
    with pytest.raises(RefusedError, match="nested too deeply"):
        create_table(path, pa.schema({"deep": kind}))
    assert not list(tmp_path.rglob("*.json"))

    write_deltalake(path, pa.table({"id": [1]}))
    commit = next(path.rglob("*.json"))
    fields = json.loads(schema_json(kind))
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"] += fields
            line["metaData"]["schemaString"] = json.dumps(schema)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table, files = open_table(path), sorted(path.rglob("*"))
    rows = pa.table({"id": [2], "deep": pa.array([None], kind)})
    for call in (table.compact, lambda: table.append(rows), lambda: table.delete(where="id = 1")):
        with pytest.raises(RefusedError, match="nested too deeply"):
            call()
    assert sorted(path.rglob("*")) == files


def schema_json(kind: pa.DataType) -> str:
    """Return a column of this type as the log has it: delta-rs writes no such table."""
    return json.dumps(json.loads(from_arrow(pa.schema({"deep": kind})).to_json())["fields"])


def test_exact_duplicates_of_deeply_nested_rows_are_refused(tmp_path):
    path = tmp_path / "t"
    create_table(path, schema_of("deep"))
    table = open_table(path)
    table.append(rows_of([0], shape="deep"))
    with pytest.raises(RefusedError, match="name key columns"):
        table.deduplicate(exact=True)


def test_an_existing_table_is_named_also_if_its_successor_could_not_be_written(tmp_path):
    create_table(tmp_path / "t", pa.schema({"id": pa.int64()}))
    with pytest.raises(TableExistsError):
        create_table(tmp_path / "t", pa.schema({"deep": nested("m" * 40)[0]}))


def test_rows_of_deep_lists_are_proved_by_two_decoders_or_not_deleted(tmp_path):
    """Lists within the limit of DuckDB are; beyond it a proof by two decoders is refused."""
    for number, depth in enumerate((10, 20)):
        kind, value = nested("l" * depth)
        schema = pa.schema({"id": pa.int64(), "deep": kind})
        rows = pa.table({"id": [1, 2], "deep": pa.array([value] * 2, kind)}, schema=schema)
        create_table(tmp_path / str(number), schema)
        table = open_table(tmp_path / str(number))
        table.append(rows)
        if depth == 10:
            table.delete(where="id = 2", prove="independent")
            assert table.to_arrow()["id"].to_pylist() == [1]
            continue
        with pytest.raises(ProofError, match="only one decoder"):
            table.delete(where="id = 2", prove="independent")
        assert table.to_arrow().num_rows == 2
        table.delete(where="id = 2")
        assert table.to_arrow()["id"].to_pylist() == [1]
