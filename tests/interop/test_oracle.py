"""The judge itself: what the other interop tests rely on."""

from __future__ import annotations

import json
import shutil

import pytest

from support.oracle import OracleError


def test_rows_come_back_sorted_with_their_nulls(oracle, tmp_path):
    oracle.write(tmp_path / "t", "SELECT * FROM VALUES (2, 'b'), (1, null) AS v(id, name)")

    assert oracle.rows(tmp_path / "t") == ['{"id":1,"name":null}', '{"id":2,"name":"b"}']


def test_an_older_version_can_be_read(oracle, tmp_path):
    oracle.write(tmp_path / "t", "SELECT 1 AS id")
    oracle.write(tmp_path / "t", "SELECT 2 AS id")

    assert oracle.rows(tmp_path / "t", version=0) == ['{"id":1}']
    assert [entry["version"] for entry in oracle.history(tmp_path / "t")] == [1, 0]
    assert oracle.detail(tmp_path / "t")["numFiles"] == 2


def test_a_read_starts_from_storage_and_not_from_a_cached_log(oracle, tmp_path):
    oracle.write(tmp_path / "t", "SELECT 1 AS id")
    oracle.write(tmp_path / "other", "SELECT 7 AS id")
    assert oracle.rows(tmp_path / "t") == ['{"id":1}']

    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "other", tmp_path / "t")

    assert oracle.rows(tmp_path / "t") == ['{"id":7}']


def test_a_stream_sees_only_what_is_new(oracle, tmp_path):
    oracle.write(tmp_path / "t", "SELECT 1 AS id")
    assert oracle.stream(tmp_path / "t", tmp_path / "place") == ['{"id":1}']

    oracle.write(tmp_path / "t", "SELECT 2 AS id")

    assert oracle.stream(tmp_path / "t", tmp_path / "place") == ['{"id":2}']


def test_changes_are_read_from_the_feed(oracle, tmp_path):
    oracle.sql(
        f"CREATE TABLE delta.`{tmp_path}/t` (id INT) USING delta"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    oracle.sql(f"INSERT INTO delta.`{tmp_path}/t` VALUES (1)")

    [change] = [json.loads(row) for row in oracle.changes(tmp_path / "t", starting_version=0)]

    assert change == {"id": 1, "_change_type": "insert", "_commit_version": 1}


def test_a_failure_is_told_and_the_next_question_is_answered(oracle, tmp_path):
    with pytest.raises(OracleError, match="no_such_column"):
        oracle.sql("SELECT no_such_column")

    assert oracle.sql("SELECT 1 AS one") == [{"one": 1}]


def test_settings_are_in_force_only_inside_their_block(oracle):
    name = "spark.sql.session.timeZone"
    with oracle.configured({name: "Asia/Tokyo"}):
        inside = oracle.sql("SELECT current_timezone() AS zone")

    assert inside == [{"zone": "Asia/Tokyo"}]
    assert oracle.sql("SELECT current_timezone() AS zone") == [{"zone": "UTC"}]
