"""Tables that are written to all the time are maintained all the same, with default settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import lakehand
from lakehand.formats.delta.table import DeltaTable
from lakehand.maintenance.due_steps import maintain_after_write, vacuum_beside_writers
from lakehand.observe.clock import ManualClock
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.busy_tables import START, Busy
from support.compactions import tasks_inline
from support.sinks import SCHEMA, batch_of, ids_in


@pytest.fixture
def busy(tmp_path):
    return Busy(tmp_path / "t")


def test_a_table_appended_to_every_minute_is_compacted(busy):
    for minute in range(20):
        busy.append(minute)
    report = busy.maintain(19.5)
    assert (report.outcome, report.files_removed) == ("committed", 15)
    assert report.files_left["recently_written"] == 5
    assert len(ids_in(busy.path)) == 20


def test_a_table_whose_rows_change_is_left_alone_and_not_for_ever(busy):
    for minute in range(20):
        busy.append(minute)
    busy.delete(19, "id = 0")
    assert busy.maintain(19.5).outcome == "nothing_to_do"

    busy.append(69)
    busy.delete(70, "id = 100000")
    assert busy.maintain(70.5, quiet_period_max="2h").outcome == "nothing_to_do"
    assert busy.maintain(70.5).outcome == "committed"
    assert len(ids_in(busy.path)) == 19


def test_an_order_is_kept_however_many_rows_come_later(busy):
    busy.append(0, rows=2000)
    with tasks_inline():
        lakehand.open_table(busy.path).cluster(by="id", curve="zorder")
    busy.date(1)
    for minute in range(2, 14):
        busy.append(minute, rows=3000)
    report = busy.maintain(60)
    assert (report.operation, report.outcome) == ("cluster", "committed")
    assert (report.columns, report.curve) == (("id",), "zorder")


@pytest.mark.parametrize("name", ["cluster_by", "z_order_columns"])
def test_a_setting_gives_automatic_runs_their_columns(busy, name):
    for minute in range(12):
        busy.append(minute, rows=10)
    report = busy.maintain(60, **{name: "part,id"}, cluster_curve="zorder")
    assert (report.operation, report.curve) == ("cluster", "zorder")
    assert list(report.columns) == ["part", "id"]


def test_writers_vacuum_once_a_day_beginning_a_day_after_their_first_look(busy):
    table, clock = DeltaTable(open_store(busy.path)), ManualClock(START)
    settings = Settings({"engine": "local"}, environment={})

    def look(hours):
        clock.advance(timedelta(hours=hours).total_seconds())
        return vacuum_beside_writers(table, settings=settings, clock=clock) is not None

    assert [look(0), look(23), look(2), look(23), look(2)] == [False, False, True, False, True]


def test_a_single_write_maintains_after_so_many_commits_and_so_much_time(busy, monkeypatch):
    looks = []
    monkeypatch.setattr(
        "lakehand.maintenance.due_steps.rewrite_if_due", lambda *_, **__: looks.append(1)
    )
    table, clock = DeltaTable(open_store(busy.path)), ManualClock(START)
    settings = Settings({"engine": "local"}, environment={})
    for version, minutes in ((1, 0), (5, 1), (11, 0), (12, 1), (13, 5), (14, 1)):
        clock.advance(minutes * 60)
        maintain_after_write(table, version=version, settings=settings, clock=clock)
    assert len(looks) == 2
    off = settings.with_call({"sink_maintenance": False})
    maintain_after_write(table, version=500, settings=off, clock=clock)
    assert len(looks) == 2


def test_maintenance_that_fails_fails_no_write(busy, monkeypatch, caplog):
    def fail(*_arguments, **_options):
        raise RuntimeError("no room")

    monkeypatch.setattr("lakehand.maintenance.due_steps.rewrite_if_due", fail)
    table, clock = DeltaTable(open_store(busy.path)), ManualClock(START)
    settings = Settings({"engine": "local"}, environment={})
    maintain_after_write(table, version=10, settings=settings, clock=clock)
    assert "no room" in caplog.text


def test_appends_and_rewrites_change_no_rows_and_deletes_do(tmp_path):
    before = datetime.now(UTC) - timedelta(minutes=1)
    lakehand.create_table(tmp_path / "t", SCHEMA)
    table = DeltaTable(open_store(tmp_path / "t"))
    opened = lakehand.open_table(tmp_path / "t")
    for number in range(4):
        opened.append(batch_of([number]))
    with tasks_inline():
        opened.compact()
    assert not table.rows_changed_since(before)
    opened.delete(where="id = 1")
    assert table.rows_changed_since(before)
    assert not table.rows_changed_since(datetime.now(UTC) + timedelta(minutes=1))
    assert ids_in(tmp_path / "t") == [0, 2, 3]
