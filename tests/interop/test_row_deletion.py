"""delta-spark and lakehand take rows out of one table, and see the same rows, ids and changes."""

from __future__ import annotations

import json
import shutil

import pytest

from support.deduplications import deduplicate_inline, delete_inline
from support.rows import delta_rs_rows, lakehand_rows

#: Rows 0 to 39 in two files, then 10 to 29 once more, with other values, in two more.
FIRST = "SELECT id, id % 4 AS part, concat('first ', id) AS name FROM range(40)"
AGAIN = "SELECT id, id % 4 AS part, concat('again ', id) AS name FROM range(10, 30)"
COLUMNS = "id BIGINT, part BIGINT, name STRING"
IDENTITY = ("id", "name", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS at")

TABLES = {
    "copies": {"delta.enableDeletionVectors": "false"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "copies-mapped": {
        "delta.enableDeletionVectors": "false",
        "delta.columnMapping.mode": "name",
        "delta.enableChangeDataFeed": "true",
    },
    "copies-tracked": {
        "delta.enableDeletionVectors": "false",
        "delta.enableRowTracking": "true",
        "delta.enableChangeDataFeed": "true",
    },
    "vectors-tracked": {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "id",
    },
}


FED = [kind for kind in TABLES if "delta.enableChangeDataFeed" in TABLES[kind]]
TRACKED = [kind for kind in TABLES if "delta.enableRowTracking" in TABLES[kind]]


@pytest.fixture(scope="module")
def originals():
    return {}


@pytest.fixture
def path(oracle, kind, originals, tmp_path_factory, tmp_path):
    """Return a copy of a table with duplicates; the table itself is made only once."""
    if kind not in originals:
        originals[kind] = tmp_path_factory.mktemp("rows") / "table"
        make(oracle, originals[kind], TABLES[kind])
    return shutil.copytree(originals[kind], tmp_path / "table")


def make(oracle, path, properties):
    """Make a partitioned table, of which delta-spark deleted a row."""
    spelled = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    oracle.sql(
        f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (part)"
        f" TBLPROPERTIES ({spelled})"
    )
    for query in (FIRST, AGAIN):
        oracle.write(path, query, files=2)
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE name = 'again 12'")


def names(rows):
    return {row["id"]: row["name"] for row in map(json.loads, rows)}


def by_id(rows):
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def changes(oracle, path, version):
    found = map(json.loads, oracle.changes(path, starting_version=version))
    return sorted((row["_change_type"], row["name"]) for row in found)


def expected_names(word):
    twice = set(range(10, 30)) - {12}
    return {i: f"{word if i in twice else 'first'} {i}" for i in range(40)}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.one_in(2)
def test_rows_that_lakehand_removed_are_gone_for_every_engine(oracle, kind, path):
    report = deduplicate_inline(path, key=["id"], keep="last")

    found = oracle.rows(path)
    assert (len(found), names(found)) == (40, expected_names("again"))
    assert report.files_marked == 0 if "copies" in kind else report.files_added == 0
    assert by_id(lakehand_rows(path)) == names(found)
    if "delta.columnMapping.mode" not in TABLES[kind]:
        assert by_id(delta_rs_rows(path)) == names(found)


@pytest.mark.parametrize("kind", FED)
def test_the_change_feed_tells_exactly_which_rows_went(oracle, path):
    report = deduplicate_inline(path, key=["id"], keep="last")

    gone = sorted(("delete", f"first {i}") for i in range(10, 30) if i != 12)
    assert changes(oracle, path, report.version) == gone


@pytest.mark.parametrize("kind", TRACKED)
def test_rows_that_stay_keep_their_identity(oracle, path):
    before = set(oracle.rows(path, columns=IDENTITY))

    deduplicate_inline(path, key=["id"], keep="first")

    after = oracle.rows(path, columns=IDENTITY)
    assert set(after) <= before
    assert names(after) == expected_names("first")


@pytest.mark.parametrize("kind", ["copies", "vectors", *TRACKED])
@pytest.mark.one_in(2)
def test_both_engines_go_on_with_what_the_other_left(oracle, path):
    deduplicate_inline(path, key=["id"], keep="last")
    oracle.sql(f"UPDATE delta.`{path}` SET name = 'updated' WHERE id = 0")
    report = delete_inline(path, "id IN (1, 2) OR part = 3")
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")
    oracle.sql(f"INSERT INTO delta.`{path}` VALUES (5, 1, 'twice')")
    deduplicate_inline(path, key=["id"], keep="last")

    left = {i: n for i, n in expected_names("again").items() if i % 4 != 3 and i not in {1, 2, 4}}
    assert names(oracle.rows(path)) == left | {0: "updated", 5: "twice"}
    assert len(oracle.rows(path)) == len(left)
    assert report.rows_removed == 12
