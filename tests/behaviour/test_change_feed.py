"""The change data feed: what each version changed, and where it cannot be told."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.errors import (
    ChangeFeedError,
    CorruptFileError,
    CorruptLogError,
    RefusedError,
    SchemaMismatchError,
    UnknownColumnError,
    ValidationError,
    VersionNotFoundError,
)

FEED = {"delta.enableChangeDataFeed": "true"}
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]
TYPES = ["insert", "update_preimage", "update_postimage", "delete"]
VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS = {
    "files": FEED,
    "vectors": FEED | VECTORS,
    "mapped": FEED | VECTORS | {"delta.columnMapping.mode": "name"},
    "ids": FEED | {"delta.columnMapping.mode": "id"},
    "times": FEED | {"delta.enableInCommitTimestamps": "true"},
}


def rows(*ids, day="mon"):
    days = pa.array([day] * len(ids), pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "day": days})


def new_table(path, properties=FEED, **options):
    return lakehand.create_table(path, rows().schema, properties=properties, **options)


def changes(table, **options):
    """Return the changes as (version, type, id, day), sorted."""
    found = table.changes(**options).read_all()
    names = ["_commit_version", "_change_type", "id", "day"]
    return sorted(zip(*(found[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("properties", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["plain", "partitioned"])
def test_every_kind_of_commit_is_told(tmp_path, properties, partition_by):
    table = new_table(tmp_path, properties, partition_by=partition_by)
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    table.compact(min_files=2, engine="local")
    table.delete(where="id = 2", engine="local")
    table.upsert(rows(3, 9, day="tue"), key=["id"], engine="local")
    table.overwrite(rows(7))

    found = changes(table, from_version=0)

    versions = {entry.version: entry.operation for entry in table.history()}
    [delete, merge, overwrite] = sorted(versions)[-3:]
    assert found == sorted(
        [
            (1, "insert", 1, "mon"),
            (1, "insert", 2, "mon"),
            (1, "insert", 3, "mon"),
            (2, "insert", 4, "mon"),
            (delete, "delete", 2, "mon"),
            (merge, "insert", 9, "tue"),
            (merge, "update_postimage", 3, "tue"),
            (merge, "update_preimage", 3, "mon"),
            (overwrite, "delete", 1, "mon"),
            (overwrite, "delete", 3, "tue"),
            (overwrite, "delete", 4, "mon"),
            (overwrite, "delete", 9, "tue"),
            (overwrite, "insert", 7, "mon"),
        ]
    )


def test_the_columns_are_those_of_the_table_and_three_more(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))

    found = table.changes(from_version=0)

    assert found.schema.names == [
        "id",
        "day",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ]
    assert found.schema.field("_commit_timestamp").type == pa.timestamp("us", tz="UTC")
    [at] = found.read_all()["_commit_timestamp"].to_pylist()
    assert abs(at - datetime.now(UTC)) < timedelta(minutes=5)
    assert table.changes(from_version=0, columns=["day"]).schema.names[0] == "day"
    with pytest.raises(UnknownColumnError):
        table.changes(from_version=0, columns=["other"])


def test_the_range_includes_both_ends(tmp_path):
    table = new_table(tmp_path)
    for number in range(1, 5):
        table.append(rows(number))

    found = changes(table, from_version=2, to_version=3)

    assert [row[2] for row in found] == [2, 3]


def set_times(table, first):
    """Give each commit its own minute."""
    log = Path(table.url.removeprefix("file://"), "_delta_log")
    for number, commit in enumerate(sorted(log.glob("*.json"))):
        moment = (first + timedelta(minutes=number)).timestamp()
        os.utime(commit, (moment, moment))


def test_times_choose_the_versions_between_them(tmp_path):
    table = new_table(tmp_path)
    for number in range(1, 5):
        table.append(rows(number))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    set_times(table, noon)

    def between(start, end):
        span = {"from_timestamp": noon + start, "to_timestamp": noon + end}
        return [row[2] for row in changes(table, **span)]

    minute, second = timedelta(minutes=1), timedelta(seconds=1)
    assert between(minute, 3 * minute) == [1, 2, 3]
    assert between(minute + second, 3 * minute - second) == [2]
    assert between(minute + second, 2 * minute - second) == []
    assert between(-minute, 2 * minute) == [1, 2]
    assert changes(table, from_timestamp="2026-01-01T12:04:00")[0][2] == 4
    with pytest.raises(VersionNotFoundError):
        table.changes(from_timestamp=noon + 5 * minute)


def test_ranges_that_do_not_exist_are_errors(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))

    for span in ({"from_version": 2}, {"from_version": 0, "to_version": 2}):
        with pytest.raises(VersionNotFoundError):
            table.changes(**span)
    for span in (
        {},
        {"from_version": 1, "to_version": 0},
        {"from_version": 1, "from_timestamp": "2026-01-01"},
    ):
        with pytest.raises(ValidationError):
            table.changes(**span)


def test_a_version_without_the_feed_is_an_error_before_any_row(tmp_path):
    table = new_table(tmp_path, {})
    table.append(rows(1))
    table.set_properties(FEED)
    table.append(rows(2))
    table.unset_properties(list(FEED))

    with pytest.raises(ChangeFeedError, match="version 1"):
        table.changes(from_version=1)
    assert changes(table, from_version=2, to_version=3) == [(3, "insert", 2, "mon")]
    with pytest.raises(ChangeFeedError, match="version 4") as caught:
        table.changes(from_version=3)
    assert (caught.value.code, caught.value.version) == ("CHANGE_FEED", 4)


def test_files_that_vacuum_deleted_are_an_error(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))
    table.overwrite(rows(2))
    [gone] = [path for path in tmp_path.glob("*.parquet") if 1 in read_ids(path)]
    gone.unlink()

    stream = table.changes(from_version=0)

    with pytest.raises(ChangeFeedError, match="version 1"):
        stream.read_all()


def test_a_deletion_vector_that_vacuum_deleted_is_an_error(tmp_path):
    table = new_table(tmp_path, KINDS["vectors"])
    table.append(rows(*range(10)))
    table.delete(where="id = 2", engine="local")
    table.delete(where="id = 3", engine="local")
    oldest = min(tmp_path.rglob("*deletion_vector*.bin"), key=lambda path: path.stat().st_mtime_ns)
    oldest.unlink()

    with pytest.raises(ChangeFeedError, match="version 2"):
        table.changes(from_version=1).read_all()
    assert table.to_arrow().num_rows == 8


def test_a_damaged_file_is_no_vacuumed_file(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))
    [path] = tmp_path.glob("*.parquet")
    path.write_bytes(b"x" * path.stat().st_size)

    with pytest.raises(CorruptFileError):
        table.changes(from_version=0).read_all()


def edit_commit(path, version, edit):
    """Change the actions of a commit, as another writer might have written it."""
    commit = path / "_delta_log" / f"{version:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    commit.write_text("".join(json.dumps(edit(line)) + "\n" for line in lines))


def test_a_merge_that_changed_no_row_has_no_changes(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))
    names = ("Inserted", "Updated", "Deleted")

    def merge(line):
        if "commitInfo" in line:
            metrics = {f"numTargetRows{name}": "0" for name in names}
            line["commitInfo"] |= {"operation": "MERGE", "operationMetrics": metrics}
        return line

    assert len(changes(table, from_version=0)) == 1
    edit_commit(tmp_path, 1, merge)
    assert changes(table, from_version=0) == []


def test_a_removed_file_without_its_partition_is_an_error(tmp_path):
    table = new_table(tmp_path, partition_by=["day"])
    table.append(rows(1))
    table.overwrite(rows(2))

    def forget(line):
        if "remove" in line:
            del line["remove"]["partitionValues"]
        return line

    edit_commit(tmp_path, 2, forget)
    with pytest.raises(CorruptLogError, match="which partition"):
        table.changes(from_version=0).read_all()


def test_lance_tables_have_no_change_feed_and_no_properties(tmp_path):
    table = lakehand.create_table(tmp_path / "t", rows().schema, format="lance")
    for call in (
        lambda: table.changes(from_version=0),
        lambda: table.set_properties({"a": "b"}),
        lambda: table.cluster_by("id"),
        table.checkpoints,
    ):
        with pytest.raises(RefusedError):
            call()


def read_ids(path):
    import pyarrow.parquet as pq

    return pq.read_table(path)["id"].to_pylist()


def test_commits_that_were_cleaned_away_are_an_error(tmp_path):
    table = new_table(tmp_path)
    for number in range(1, 4):
        table.append(rows(number))
    table.checkpoint(version=2)
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()

    with pytest.raises(VersionNotFoundError, match="versions 2 to 3"):
        table.changes(from_version=0)
    assert [row[2] for row in changes(table, from_version=2)] == [2, 3]


def test_older_versions_have_nulls_in_columns_that_came_later(tmp_path):
    table = new_table(tmp_path)
    table.append(rows(1))
    table.append(rows(2).append_column("more", pa.array(["x"])), schema_evolution=True)

    found = table.changes(from_version=0).read_all().sort_by("id")

    assert found["more"].to_pylist() == [None, "x"]


def test_a_change_of_type_is_an_error(tmp_path):
    narrow = pa.schema([("id", pa.int32()), ("day", pa.string())])
    table = lakehand.create_table(tmp_path / "narrow", narrow, properties=FEED)
    table.append(rows(1).cast(narrow))
    table.append(rows(2), schema_evolution=True, type_widening=True)

    with pytest.raises(SchemaMismatchError, match="'id': its type changed"):
        table.changes(from_version=0)
    assert [row[2] for row in changes(table, from_version=2)] == [2]


def test_rows_that_come_back_by_a_restore_are_inserts(tmp_path):
    table = new_table(tmp_path, KINDS["vectors"])
    table.append(rows(1, 2, 3))
    table.delete(where="id = 2", engine="local")
    table.restore(version=1)

    assert changes(table, from_version=2) == [(2, "delete", 2, "mon"), (3, "insert", 2, "mon")]


def test_a_deletion_reads_only_the_row_groups_of_deleted_rows(tmp_path, monkeypatch):
    table = new_table(tmp_path, KINDS["vectors"])
    table.append(rows(*range(1000)), row_group_rows=100)
    table.delete(where="id = 555", engine="local")
    fetched = []
    from lakehand.parquet.row_group_reader import OpenFile

    fetch = OpenFile.fetch

    def counted(self, group, leaves):
        fetched.append(group)
        return fetch(self, group, leaves)

    monkeypatch.setattr(OpenFile, "fetch", counted)

    assert changes(table, from_version=2) == [(2, "delete", 555, "mon")]
    assert len(fetched) == 1


def test_the_command_counts_lists_and_saves_changes(tmp_path, capsys):
    table = new_table(tmp_path / "t")
    table.append(rows(1, 2))
    table.delete(where="id = 2", engine="local")

    def command(*words):
        code = run(["changes", table.url, *words])
        return code, capsys.readouterr().out

    code, out = command("--from-version", "0")
    header, *lines = (line.split() for line in out.splitlines())
    assert (code, header) == (0, ["version", "committed", *TYPES])
    assert [(line[0], *line[-4:]) for line in lines] == [
        ("1", "2", "0", "0", "0"),
        ("2", "0", "0", "0", "1"),
    ]
    assert command("--from-version", "0", "--to-version", "0") == (0, "no changes\n")
    document = json.loads(command("--from-version", "2", "--json")[1])
    assert [(row["id"], row["_change_type"]) for row in document["changes"]] == [(2, "delete")]
    for suffix in ("parquet", "arrow"):
        target = tmp_path / f"changes.{suffix}"
        assert command("--from-version", "0", "--output", str(target))[0] == 0
        assert target.stat().st_size > 0
    import pyarrow.parquet as pq

    saved = pq.read_table(tmp_path / "changes.parquet")
    assert pc.sum(saved["id"]).as_py() == 5
    assert command("--from-version", "0", "--output", str(tmp_path / "changes.txt"))[0] == 2
    assert command()[0] == 2
