"""delta-spark and lakehand change the same rows of one table in turns: rows, ids and changes."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

import lakehand
from support.rows import lakehand_rows

COLUMNS = "id BIGINT, part BIGINT, name STRING"
FIRST = "SELECT id, id % 3 AS part, concat('first ', id) AS name FROM range(30)"
IDENTITY = ("id", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS at")
VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}
TABLES = {
    "vectors": {**VECTORS},
    "vectors-tracked-fed": {**VECTORS, **FEED, "delta.enableRowTracking": "true"},
    "copies-mapped-fed": {
        **FEED, "delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "name",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def originals():
    return {}


@pytest.fixture
def path(oracle, kind, originals, tmp_path_factory, tmp_path):
    """Return a copy of a table; the table itself is made only once."""
    if kind not in originals:
        originals[kind] = tmp_path_factory.mktemp("upserts") / "table"
        spelled = ", ".join(f"'{name}' = '{value}'" for name, value in TABLES[kind].items())
        oracle.sql(
            f"CREATE TABLE delta.`{originals[kind]}` ({COLUMNS}) USING delta"
            f" PARTITIONED BY (part) TBLPROPERTIES ({spelled})"
        )
        oracle.write(originals[kind], FIRST, files=1)
    return shutil.copytree(originals[kind], tmp_path / "table")


def upsert(path, rows, gone=()):
    """Bring rows (id, part, name) in, and let others go; return the report."""
    ids, parts, names = zip(*rows, *((i, None, None) for i in gone), strict=True)
    words = ["U"] * len(rows) + ["D"] * len(gone)
    data = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array(parts, pa.int64()),
            "name": pa.array(names, pa.string()),
            "_op": words,
        }
    )
    return lakehand.open_table(path, engine="local").upsert(data, key=["id"])


def by_id(rows):
    found = [json.loads(row) for row in rows]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row.get("part"), row["name"]) for row in found}


def ours(path):
    rows = lakehand_rows(path).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["part"], row["name"]) for row in rows}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.one_in(3)
def test_merges_updates_and_deletes_alternate_with_upserts(oracle, kind, path):
    model = {i: (i % 3, f"first {i}") for i in range(30)}
    name = f"delta.`{path}`"

    upsert(path, [(1, 1, "ours"), (2, 0, "moved"), (40, 1, "new")], gone=[5])
    model |= {1: (1, "ours"), 2: (0, "moved"), 40: (1, "new")}
    del model[5]
    oracle.sql(
        f"MERGE INTO {name} t USING (SELECT id, 2L AS part, concat('theirs ', id) AS name FROM"
        " range(38, 42)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    model |= {i: (2, f"theirs {i}") for i in range(38, 42)}
    upsert(path, [(40, 0, "ours again"), (38, 2, "ours too"), (5, 2, "back")], gone=[1])
    model |= {40: (0, "ours again"), 38: (2, "ours too"), 5: (2, "back")}
    del model[1]
    oracle.sql(f"UPDATE {name} SET name = 'updated' WHERE id IN (5, 6, 40)")
    model |= {i: (model[i][0], "updated") for i in (5, 6, 40)}
    upsert(path, [(6, 0, "last"), (2, 2, "moved back")])
    model |= {6: (0, "last"), 2: (2, "moved back")}
    oracle.sql(f"DELETE FROM {name} WHERE id IN (2, 7, 41)")
    model = {i: row for i, row in model.items() if i not in {2, 7, 41}}

    assert by_id(oracle.rows(path)) == model
    assert ours(path) == model


@pytest.mark.parametrize("kind", [kind for kind in TABLES if "fed" in kind])
def test_delta_spark_reads_complete_changes(oracle, kind, path):
    report = upsert(path, [(1, 1, "ours"), (2, 0, "moved"), (40, 1, "new")], gone=[5, 77])

    found = map(json.loads, oracle.changes(path, starting_version=report.version))
    assert sorted((row["_change_type"], row["id"], row["part"], row["name"]) for row in found) == [
        ("delete", 5, 2, "first 5"),
        ("insert", 40, 1, "new"),
        ("update_postimage", 1, 1, "ours"),
        ("update_postimage", 2, 0, "moved"),
        ("update_preimage", 1, 1, "first 1"),
        ("update_preimage", 2, 2, "first 2"),
    ]
    assert kind.startswith("copies") == (report.files_marked == 0)


@pytest.mark.parametrize("kind", ["vectors-tracked-fed"])
def test_updated_rows_keep_their_ids_as_delta_spark_reads_them(oracle, path):
    before = identities(oracle, path)

    report = upsert(path, [(1, 1, "ours"), (2, 0, "moved"), (40, 1, "new")], gone=[5])

    after = identities(oracle, path)
    kept = {i: row_id for i, (row_id, _) in before.items() if i != 5}
    assert {i: row_id for i, (row_id, _) in after.items() if i != 40} == kept
    assert after[40][0] not in {row_id for row_id, _ in before.values()}
    assert {i for i, (_, at) in after.items() if at == report.version} == {1, 2, 40}
    assert {i: at for i, (_, at) in after.items() if i not in {1, 2, 40}} == {
        i: at for i, (_, at) in before.items() if i not in {1, 2, 5}
    }


def identities(oracle, path):
    found = map(json.loads, oracle.rows(path, columns=IDENTITY))
    return {row["id"]: (row["row_id"], row["at"]) for row in found}


@pytest.mark.parametrize("kind", ["vectors"])
def test_the_history_tells_a_merge(oracle, path):
    upsert(path, [(1, 1, "ours"), (40, 1, "new")], gone=[5])

    newest = oracle.history(path)[0]
    assert newest["operation"] == "MERGE"
    told = {n: newest["operationMetrics"][f"numTargetRows{n}"] for n in ("Updated", "Deleted")}
    assert told == {"Updated": "1", "Deleted": "1"}
