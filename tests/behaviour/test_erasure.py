"""Erasure: when purge says that a value is gone, no byte below the table's root tells it."""

from __future__ import annotations

import json

import lance
import pytest

import lakehand
from lakehand.formats.lance.table import LanceTable
from support.compactions import tasks_inline
from support.erasures import LATENESS, SECRET, Days, codes, make_with_secret, places_with, rows
from support.small_tables import commit_by_hand

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
V2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
TIMED = {"delta.enableInCommitTimestamps": "true"}
KINDS = {
    "copy_on_write": {},
    "deletion_vectors": {"properties": VECTORS},
    "change_data_feed_and_vectors": {"properties": VECTORS | FEED},
    "v2_checkpoints": {"properties": VECTORS | V2},
    "partition_value": {"partition_by": ["email"]},
    "partition_value_v2": {"partition_by": ["email"], "properties": V2},
    "in_commit_timestamps": {"properties": TIMED},
}


def delete_secret(path):
    with tasks_inline():
        lakehand.open_table(path, engine="local").delete(where=f"email = '{SECRET}'")


def emails(path):
    return sorted(lakehand.open_table(path).to_arrow()["email"].to_pylist())


def erase_in_time(path, **options):
    """Purge on some days, and check on each that the report tells of what the search finds."""
    days = Days(path, **options)
    report = first = days.purge()
    stated = max(first.gone_at + LATENESS, first.log_gone_at or days.start)
    assert first.remaining
    for _ in days.on_schedule(until=stated):
        report = days.purge()
        assert bool(report.remaining) >= bool(places_with(path))
        assert report.log_gone_at in {first.log_gone_at, None}
        assert report.gone_at is None or report.gone_at <= first.gone_at + LATENESS
    assert places_with(path) == []
    assert (codes(report), report.gone_at, report.log_gone_at) == ([], None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_tells_of_the_value_until_no_byte_does(tmp_path, kind):
    path = make_with_secret(tmp_path / "t", **KINDS[kind])
    delete_secret(path)
    erase_in_time(path)
    assert emails(path) == ["a@example", "b@example", "c@example"]


def test_a_file_that_loses_all_of_its_rows_leaves_nothing(tmp_path):
    path = make_with_secret(tmp_path / "t", properties=VECTORS)
    with tasks_inline():
        lakehand.open_table(path, engine="local").delete(where="id >= 2")
    erase_in_time(path)
    assert emails(path) == ["a@example", "b@example"]


def test_a_clustered_table_leaves_nothing(tmp_path):
    path = make_with_secret(tmp_path / "t", properties=VECTORS)
    with tasks_inline():
        table = lakehand.open_table(path, engine="local")
        table.cluster(by="email", curve="zorder", full=True)
    delete_secret(path)
    erase_in_time(path)
    assert emails(path) == ["a@example", "b@example", "c@example"]


def test_an_overwritten_table_leaves_nothing(tmp_path):
    path = make_with_secret(tmp_path / "t")
    lakehand.open_table(path).overwrite(rows("d@example"))
    erase_in_time(path)
    assert emails(path) == ["d@example"]


def test_a_column_that_was_dropped_by_name_leaves_nothing(tmp_path):
    path = tmp_path / "t"
    mapped = {"delta.columnMapping.mode": "name"}
    make_with_secret(path, properties=mapped)
    drop_column(path, "email")
    erase_in_time(path)
    assert lakehand.open_table(path).to_arrow().column_names == ["id"]


def drop_column(path, name):
    """Drop a column as other engines do: by a commit of metadata alone."""
    first = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != name]
    commit_by_hand(path, {"metaData": metadata | {"schemaString": json.dumps(schema)}})


def test_checksums_of_other_engines_that_list_all_files_go_with_their_versions(tmp_path):
    path = make_with_secret(tmp_path / "t")
    for version in range(3):
        checksum = path / "_delta_log" / f"{version:020}.crc"
        checksum.write_text(json.dumps({"allFiles": [{"stats": SECRET}]}))
    delete_secret(path)
    erase_in_time(path)
    assert places_with(path) == []


def test_what_others_commit_after_a_purge_does_not_move_its_date(tmp_path):
    path = make_with_secret(tmp_path / "t", properties=VECTORS)
    delete_secret(path)
    days = Days(path)
    stated = days.purge().log_gone_at
    for number in range(12):
        lakehand.open_table(path).append(rows("d@example", start=10 + number))
    with tasks_inline():
        lakehand.open_table(path, engine="local").compact(min_files=2)
    days.date_files()
    assert days.purge(days=3).log_gone_at == stated
    days.now = stated
    assert "log" not in codes(days.purge())
    assert [place for place in places_with(path) if place.startswith("_delta_log")] == []


def test_a_partition_value_keeps_its_date_although_checkpoints_are_written(tmp_path):
    path = make_with_secret(tmp_path / "t", partition_by=["email"])
    delete_secret(path)
    days = Days(path)
    days.purge()
    lakehand.open_table(path).checkpoint()
    days.date_files()
    days.purge(days=1)
    stated = days.purge().log_gone_at
    days.purge(days=8)
    days.now = stated
    assert "log" not in codes(days.purge())
    assert [place for place in places_with(path) if place.startswith("_delta_log")] == []


def test_a_log_that_is_cleaned_before_the_files_does_not_hide_them(tmp_path):
    properties = VECTORS | {"delta.logRetentionDuration": "interval 1 days"}
    path = make_with_secret(tmp_path / "t", properties=properties)
    delete_secret(path)
    days = Days(path)
    first = days.purge()
    lakehand.open_table(path).append(rows("d@example", start=10))
    lakehand.open_table(path).checkpoint()
    days.date_files()
    third = days.purge(days=3)
    assert third.log_gone_at is None
    assert places_with(path)
    assert codes(third) == ["older_versions"]
    assert abs(third.gone_at - first.gone_at) < LATENESS
    days.purge(days=4.1)
    assert (codes(days.purge(days=1.1)), places_with(path)) == ([], [])


def test_a_second_purge_of_the_same_day_commits_nothing(tmp_path):
    path = make_with_secret(tmp_path / "t")
    delete_secret(path)
    days = Days(path)
    version = days.purge().version
    second = days.purge()
    assert (second.outcome, second.version) == ("nothing_to_do", version)


def test_a_log_that_must_not_be_cleaned_has_no_date_and_the_reason(tmp_path):
    path = make_with_secret(tmp_path / "t", properties={"delta.enableExpiredLogCleanup": "false"})
    delete_secret(path)
    report = Days(path).purge()
    (place,) = [place for place in report.remaining if place.code == "log"]
    assert (report.log_gone_at, place.until) == (None, None)
    assert "delta.enableExpiredLogCleanup" in place.message


def test_backups_of_a_repair_are_reported(tmp_path):
    path = make_with_secret(tmp_path / "t")
    backup = path / "_lakehand" / "aside" / "1" / "part.parquet"
    backup.parent.mkdir(parents=True)
    backup.write_text(SECRET)
    delete_secret(path)
    assert "backups" in codes(Days(path).purge())


def in_lance(path, condition):
    lance.dataset(path).delete(condition)


LANCE = {
    "a_row": lambda path: in_lance(path, f"email = '{SECRET}'"),
    "a_row_by_lakehand": delete_secret,
    "a_whole_fragment": lambda path: in_lance(path, f"email = '{SECRET}' OR id >= 2"),
    "a_column": lambda path: lance.dataset(path).drop_columns(["email"]),
}


@pytest.mark.parametrize("what", LANCE)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_lance_table_leaves_nothing(tmp_path, what, is_indexed):
    path = make_with_secret(tmp_path / "t", format="lance")
    if is_indexed and what != "a_whole_fragment":
        lance.dataset(path).create_scalar_index("email", "BTREE")
    LANCE[what](path)
    erase_in_time(path, of=LanceTable)
    assert lakehand.open_table(path).to_arrow()["id"].to_pylist()[:2] == [0, 1]


def test_an_index_that_lance_does_not_free_of_deleted_rows_is_reported(tmp_path):
    path = make_with_secret(tmp_path / "t", format="lance")
    lance.dataset(path).create_scalar_index("email", "BTREE")
    in_lance(path, "id >= 2")
    days = Days(path, of=LanceTable)
    assert "indices" in codes(days.purge())
    assert codes(days.purge(days=30, grace="0")) == ["indices"]
    lance.dataset(path).create_scalar_index("email", "BTREE", replace=True)
    assert "indices" not in codes(days.purge())
