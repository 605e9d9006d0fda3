"""Health: every threshold trips alone, and a table that cannot be read is an answer."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from lakehand import check_health, open_table
from lakehand.assess import health_check
from lakehand.assess.health_check import check_health as check_handle
from lakehand.cli.main import run
from lakehand.errors import ValidationError
from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.clock import ManualClock
from lakehand.settings import Settings
from lakehand.storage import MemoryStore
from support.hand_written_logs import add, metadata, protocol, put_commit
from support.small_tables import fingerprint, make_table

START = datetime(2026, 1, 1, tzinfo=UTC)
_names = itertools.count()


def failing(report) -> list[str]:
    return [check.code for check in report.checks if not check.passed]


class Monitored:
    """The log of a table: one file for each action, one commit each, and the clock of both."""

    def __init__(self, *actions: dict) -> None:
        self.clock = ManualClock(START)
        self.store = MemoryStore(f"monitored-{next(_names)}", clock=self.clock)
        put_commit(self.store, 0, protocol(reader=["deletionVectors"]), metadata())
        for version, action in enumerate(actions, start=1):
            put_commit(self.store, version, action)

    def check(self, *, orphans: bool = False, **settings):
        table = DeltaTable(self.store, clock=self.clock)
        chosen = Settings(settings, environment={})
        # There is a log, and nothing else.
        with patch.object(health_check, "_damage", lambda *_: {}):
            return check_handle(table, settings=chosen, orphans=orphans, clock=self.clock)


def large_files(count: int, **members) -> list[dict]:
    return [add(f"{n}.parquet", size=128 * 2**20, **members) for n in range(count)]


def test_a_table_of_large_files_is_healthy_and_says_what_it_looked_at():
    report = Monitored(*large_files(3)).check()
    assert (report.healthy, report.version, report.file_count, report.score) == (True, 3, 3, 100)
    assert [check.code for check in report.checks] == [
        "damaged_files", "small_file_ratio", "deleted_row_ratio", "commits_since_checkpoint",
        "checkpoint_age",
    ]  # fmt: skip


def test_small_files_are_unhealthy_once_compaction_would_save_most_of_them():
    table = Monitored(*(add(f"{n}.parquet") for n in range(10)))
    assert failing(table.check()) == ["small_file_ratio"]
    assert failing(table.check(max_small_file_ratio=0.9)) == []
    assert failing(table.check(max_small_file_ratio=0.89)) == ["small_file_ratio"]


def test_a_few_small_files_that_maintain_leaves_alone_are_no_reason_for_an_alarm():
    assert Monitored(*(add(f"{n}.parquet") for n in range(9))).check().healthy
    few = Monitored(*(add(f"{n}.parquet") for n in range(4)))
    assert failing(few.check(automatic_min_files=4)) == ["small_file_ratio"]


def test_small_files_that_are_still_being_written_are_no_reason_for_an_alarm():
    now = int(START.timestamp() * 1000)
    table = Monitored(*(add(f"{n}.parquet", modificationTime=now) for n in range(30)))
    report = table.check()
    assert report.healthy
    assert [reason.code for reason in report.reasons] == ["small_files", "checkpoint_overdue"]
    assert failing(table.check(quiet_period="0s")) == ["small_file_ratio"]
    table.clock.advance(timedelta(minutes=6).total_seconds())
    assert failing(table.check()) == ["small_file_ratio"]


def test_deleted_rows_are_unhealthy_above_their_threshold():
    vector = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40}
    file = add("a.parquet", rows=10, size=2**27, deletionVector={**vector, "cardinality": 3})
    table = Monitored(file)
    assert failing(table.check()) == ["deleted_row_ratio"]
    assert failing(table.check(max_deleted_row_ratio=0.3)) == []


def test_a_long_log_is_unhealthy_above_its_threshold():
    table = Monitored(*large_files(12))
    assert failing(table.check(max_commits_since_checkpoint=13)) == []
    assert failing(table.check(max_commits_since_checkpoint=12)) == ["commits_since_checkpoint"]


def test_a_checkpoint_that_is_due_for_long_is_unhealthy_and_one_that_is_not_due_never():
    due, early = Monitored(*large_files(12)), Monitored(*large_files(2))
    for table in (due, early):
        table.clock.advance(timedelta(days=8).total_seconds())
    assert failing(due.check()) == ["checkpoint_age"]
    assert failing(due.check(max_checkpoint_age="9d")) == []
    assert failing(early.check()) == []


def test_a_checkpoint_makes_log_length_and_age_healthy_again():
    table = Monitored(*large_files(12))
    table.clock.advance(timedelta(days=8).total_seconds())
    DeltaTable(table.store, clock=table.clock).checkpoint()
    report = table.check(max_commits_since_checkpoint=1)
    assert (report.healthy, report.score) == (True, 100)


def clustered(ranges) -> Monitored:
    """Return a table that is clustered by `id`, with a large file for each range of it."""
    ends = [{"minValues": {"id": low}, "maxValues": {"id": high}} for low, high in ranges]
    stats = [json.dumps({"numRecords": 9, "nullCount": {"id": 0}, **end}) for end in ends]
    files = [add(f"{n}.parquet", size=128 * 2**20, stats=text) for n, text in enumerate(stats)]
    columns = json.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"})
    domain = {"domain": "delta.clustering", "configuration": columns, "removed": False}
    features = protocol("clustering", "domainMetadata", reader=["deletionVectors"])
    return Monitored(features, {"domainMetadata": domain}, *files)


def test_files_over_one_another_are_unhealthy_in_columns_that_the_table_is_clustered_by():
    apart = clustered([(at * 10, at * 10 + 9) for at in range(9)]).check()
    deep = clustered([(0, 99)] * 9).check()

    depths = [check for report in (apart, deep) for check in report.checks[-1:]]
    assert [(check.code, check.value) for check in depths] == [
        ("overlap_depth", 1), ("overlap_depth", 9),
    ]  # fmt: skip
    assert (failing(apart), failing(deep)) == ([], ["overlap_depth"])
    assert apart.score - deep.score == 11
    assert failing(clustered([(0, 99)] * 9).check(max_overlap_depth=9)) == []


def test_a_table_that_is_damaged_is_unhealthy_with_the_error_inside():
    table = Monitored(*large_files(3))
    table.store.delete(["_delta_log/00000000000000000002.json"])
    report = table.check()
    assert (report.healthy, report.version, report.score) == (False, None, 0)
    assert report.error["code"] == "CORRUPT_LOG"
    assert [reason.code for reason in report.reasons] == ["unreadable"]


def test_a_place_without_a_table_is_unhealthy_and_a_wrong_setting_is_a_mistake(tmp_path):
    report = check_health(tmp_path / "nowhere")
    assert (report.healthy, report.error["code"]) == (False, "NOT_A_TABLE")
    with pytest.raises(ValidationError, match="max_small_file_ratio"):
        check_health(tmp_path / "nowhere", max_small_file_ratio=7)


def test_a_store_that_does_not_answer_is_unhealthy():
    options = {
        "aws_endpoint": "http://127.0.0.1:1", "aws_allow_http": "true", "aws_region": "x",
        "aws_access_key_id": "key", "aws_secret_access_key": "hidden-secret",
    }  # fmt: skip
    report = check_health("s3://lake/events", storage_options=options, max_retries=0)
    assert (report.table, report.healthy, report.version) == ("s3://lake/events", False, None)
    assert "hidden-secret" not in json.dumps(report.to_json())


def test_the_command_prints_the_promised_fields_and_exits_with_5(tmp_path, capsys, monkeypatch):
    table = make_table(tmp_path / "events")
    before = fingerprint(table)
    monkeypatch.setenv("LAKEHAND_AUTOMATIC_MIN_FILES", "2")
    assert run(["health", str(table), "--json"]) == 0, "files are too new to be an alarm"
    capsys.readouterr()
    assert run(["health", str(table), "--json", "--quiet-period", "0s"]) == 5
    document = json.loads(capsys.readouterr().out)
    promised = {"healthy", "version", "file_count", "latency_ms", "score", "reasons", "checks"}
    assert document.keys() >= promised
    assert (document["healthy"], document["version"], document["file_count"]) == (False, 5, 12)
    options = ["--max-small-file-ratio", "1", "--quiet-period", "0s"]
    assert run(["health", str(table), *options]) == 0
    assert "healthy, score" in capsys.readouterr().out
    assert fingerprint(table) == before


def test_the_command_calls_a_missing_table_unhealthy(tmp_path, capsys):
    assert run(["health", str(tmp_path / "none")]) == 5
    assert "no table" in capsys.readouterr().out.lower()


def test_orphans_are_counted_only_where_asked_for_those_set_aside_included():
    table = Monitored(*large_files(1))
    table.store.put("left-over.parquet", b"x" * 1000)
    table.clock.advance(timedelta(days=8).total_seconds())
    assert failing(table.check(max_orphan_bytes=0)) == []
    assert failing(table.check(max_orphan_bytes=999, orphans=True)) == ["orphan_bytes"]
    assert failing(table.check(max_orphan_bytes=1000, orphans=True)) == []
    assert table.store.exists("left-over.parquet")


def test_a_table_that_has_lost_its_files_is_not_healthy(tmp_path):
    path = make_table(tmp_path / "table", commits=3)
    assert (open_table(path).health().files_checked, open_table(path).health().files_damaged) == (
        6, 0,
    )  # fmt: skip
    for file in path.rglob("part-*.parquet"):
        file.unlink()
    for orphans in (False, True):
        report = open_table(path).health(orphans=orphans)
        assert (report.healthy, report.score) == (False, 0)
        assert (report.files_checked, report.files_damaged) == (6, 6)
        [reason] = [r for r in report.reasons if r.code == "damaged_files"]
        assert "6 of 6 files checked" in reason.message
        assert "missing_file" in reason.message


def test_a_file_of_another_size_is_damage_too(tmp_path):
    path = make_table(tmp_path / "table", commits=1)
    file = next(path.rglob("part-*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    report = open_table(path).health()
    assert (report.healthy, report.files_damaged) == (False, 1)


def test_of_many_files_only_some_are_checked_and_others_next_time(tmp_path, monkeypatch):
    path = make_table(tmp_path / "table", commits=3)
    monkeypatch.setattr(health_check, "_SAMPLED_FILES", 2)
    report = open_table(path).health()
    assert (report.file_count, report.files_checked) == (6, 2)
    seen = {row for version in range(4) for row in health_check.sampled_rows(6, version)}
    assert seen == set(range(6))


def test_the_screen_says_how_many_files_were_checked(tmp_path, capsys):
    path = make_table(tmp_path / "table", commits=1)
    assert run(["health", str(path)]) == 0
    assert "2 of 2 files checked" in capsys.readouterr().out
