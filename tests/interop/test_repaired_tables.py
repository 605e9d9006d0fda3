"""Tables of delta-spark: sound ones are found sound, and repaired ones are read by delta-spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import time

import pytest

from lakehand import open_table
from support.oracle import OracleError

PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointInterval": "2",
}
#: Version 2 has a checkpoint, and version 3, the newest, brought the last ten.
EVERY = set(range(40)) - {5, 15}


@pytest.fixture(scope="module")
def spark_table(oracle, tmp_path_factory):
    path = tmp_path_factory.mktemp("repaired") / "table"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
    oracle.sql(
        f"CREATE TABLE delta.`{path}` USING delta TBLPROPERTIES ({properties}) AS "
        "SELECT id, concat('row ', id) AS name FROM range(20)"
    )
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id IN (5, 15)")
    insert(oracle, path, 20, 30)
    insert(oracle, path, 30, 40)
    return path


@pytest.fixture
def path(spark_table, tmp_path):
    return shutil.copytree(spark_table, tmp_path / "table")


def insert(oracle, path, start, end):
    query = f"SELECT id, concat('row ', id) FROM range({start}, {end})"
    oracle.sql(f"INSERT INTO delta.`{path}` {query}")


def log_file(path, version, kind="json"):
    return path / "_delta_log" / f"{version:020}.{kind}"


def spark_ids(oracle, path):
    return {int(row) for row in oracle.rows(path, columns=["id"]) for row in [row[6:-1]]}


def assert_spark_goes_on(oracle, path, expected):
    """Have delta-spark read the table, write to it, and lakehand find it sound."""
    assert spark_ids(oracle, path) == expected
    insert(oracle, path, 50, 60)
    assert spark_ids(oracle, path) == expected | set(range(50, 60))
    assert open_table(path, engine="local").verify(proofs=False).findings == ()


def test_a_table_of_delta_spark_is_sound_down_to_its_rows(path):
    report = open_table(path, engine="local").verify(deep=True)
    assert (report.findings, report.version, report.checkpoints_checked) == ((), 3, 1)


def test_delta_spark_goes_on_from_the_last_version_that_could_be_read(oracle, path):
    log_file(path, 3).write_bytes(b'{"commitInfo":{"timest')
    done = open_table(path).repair(accept_data_loss=True)
    assert (done.remaining, done.version) == ((), 2)
    assert_spark_goes_on(oracle, path, EVERY - set(range(30, 40)))


def test_delta_spark_goes_on_where_only_history_was_lost(oracle, path):
    log_file(path, 1).unlink()
    done = open_table(path).repair(accept_data_loss=True)
    assert (done.remaining, done.version) == ((), 3)
    assert open_table(path).history()[-1].version == 2
    assert_spark_goes_on(oracle, path, EVERY)


def test_delta_spark_needs_a_commit_beside_its_checkpoint_and_gets_one(oracle, path):
    for version in (2, 3):
        log_file(path, version).unlink()
    with pytest.raises(OracleError):
        oracle.rows(path)
    done = open_table(path).repair(accept_data_loss=True)
    assert (done.remaining, done.version) == ((), 2)
    assert_spark_goes_on(oracle, path, EVERY - set(range(30, 40)))


def test_delta_spark_reads_on_without_a_file_that_was_lost(oracle, path):
    table = open_table(path)
    lost = next(file for file in table.snapshot().files.to_pylist() if file["deleted_rows"])
    (path / lost["path"]).unlink()
    with pytest.raises(OracleError):
        oracle.rows(path)
    done = table.repair(accept_data_loss=True)
    assert (done.remaining, done.rows_dropped) == ((), lost["rows"] - lost["deleted_rows"])
    left = {int(i) for i in table.to_arrow()["id"].to_pylist()}
    assert len(EVERY - left) == done.rows_dropped
    assert spark_ids(oracle, path) == left


def test_delta_spark_reads_what_is_left_once_a_lost_vector_is_given_up(oracle, path):
    for vector in path.glob("deletion_vector_*.bin"):
        vector.unlink()
    with pytest.raises(OracleError):
        oracle.rows(path)
    done = open_table(path).repair(restore_deleted_rows=True)
    assert (done.remaining, done.files_dropped) == ((), ())
    assert_spark_goes_on(oracle, path, EVERY | {5, 15})


def test_delta_spark_reads_a_table_whose_vector_was_counted_again(oracle, path):
    commit = log_file(path, 1)
    commit.write_text(re.sub(r'"cardinality":\d+', '"cardinality":4', commit.read_text()))
    for other in (log_file(path, 2, "checkpoint.parquet"), *(path / "_delta_log").glob("*.crc")):
        other.unlink()
    for sums in (path / "_delta_log").glob(".*.crc"):
        sums.unlink()
    done = open_table(path).repair()
    assert "correct_deletion_count" in {repair.name for repair in done.repairs}
    assert done.remaining == ()
    assert_spark_goes_on(oracle, path, EVERY)


def test_delta_spark_reads_a_checkpoint_that_was_written_anew(oracle, path):
    checkpoint = log_file(path, 2, "checkpoint.parquet")
    checkpoint.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(OracleError):
        oracle.rows(path)
    assert open_table(path).repair().remaining == ()
    assert checkpoint.stat().st_size > 1000
    assert spark_ids(oracle, path) == EVERY


def test_delta_spark_reads_what_a_checksum_of_other_bytes_kept_it_from(oracle, path):
    # Without its own checksum files delta-spark has to read the commits.
    for checksums in (path / "_delta_log").glob("[0-9]*.crc"):
        checksums.unlink()
    sums = path / "_delta_log" / f".{3:020}.json.crc"
    sums.write_bytes(sums.read_bytes()[:8] + bytes(sums.stat().st_size - 8))
    with pytest.raises(OracleError):
        oracle.rows(path)
    [found] = open_table(path).verify(proofs=False).findings
    assert found.name == "stale_hadoop_sum"
    assert open_table(path).repair().outcome == "refused"
    assert open_table(path).repair(accept_changed_files=True).remaining == ()
    assert spark_ids(oracle, path) == EVERY


def test_delta_spark_reads_a_cleaned_log_with_a_v2_checkpoint_under_both_names(oracle, path):
    oracle.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    table = open_table(path)
    newest = table.checkpoint()
    assert newest.kind == "v2"
    _age(path, days=40)
    assert table.clean_logs().oldest_version == newest.version
    assert log_file(path, newest.version, "checkpoint.parquet").exists()
    assert spark_ids(oracle, path) == EVERY


def _age(path, *, days):
    """Move the time of the whole table back, in its commits and on disk."""
    for file in (path / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            info = line.get("commitInfo", {})
            for name in {"timestamp", "inCommitTimestamp"} & info.keys():
                info[name] -= days * 24 * 3600 * 1000
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        then = time.time() - days * 24 * 3600
        os.utime(file, (then, then))
    for sums in (path / "_delta_log").glob("*.crc"):
        sums.unlink()
