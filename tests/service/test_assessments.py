"""Tables are assessed from new commits alone; what is due is queued with a score and reasons."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from sqlalchemy import text

import lakehand
from lakehand.formats.delta.log import summaries
from lakehand.service.config import parse_config
from lakehand.service.notifications import Notification, Notifications
from lakehand.service.reader_main import read_table
from lakehand.service.scheduler import Scheduler
from lakehand.service.scores import MEASURES, head_start
from lakehand.service.store.database_schema import MEASUREMENTS
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.summary_store import SummaryStore
from lakehand.service.store.system_tables import create_views, read_system_table
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.table_reader import BackgroundReader
from support.job_stores import add_pool, claim_by

ROWS = pa.table({"id": [1, 2, 3]})
DAY = 86_400.0
#: The report of a run that did all that was due.
DONE = {
    "steps": [
        {"step": "vacuum", "outcome": "nothing_to_do", "report": {"retention_seconds": 0.0}},
        {"step": "clean_logs", "outcome": "nothing_to_do", "report": {}},
    ]
}


class Service:
    """A scheduler over tables below a directory, whose jobs end as they are told."""

    def __init__(self, database, tmp_path):
        add_pool(database)
        self.root = tmp_path / "lake"
        self.database = database
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.summaries = SummaryStore(database)
        self.reader = InlineReader(database, self.tables)
        self.configure()

    def configure(self, **policy):
        document = {
            "source": [{"name": "lake", "include": [str(self.root)], "every": "1m"}],
            "policy": {
                "default": {
                    "check_after": {"commits": 3, "time": "10m"},
                    "automatic_min_files": 4,
                    **policy,
                }
            },
        }
        self.scheduler = Scheduler(
            parse_config(document),
            self.database,
            jobs=self.jobs,
            tables=self.tables,
            workers=WorkerRegistry(self.database),
            reader=self.reader,
        )

    def create(self, name="a", **options):
        return lakehand.create_table(self.root / name, ROWS.schema, engine="local", **options)

    def settle(self, **options):
        """Make a table of which nothing is due."""
        table = self.create(**options)
        assert self.scheduler.tick().queued == 1
        self.finish(DONE)
        return table

    def finish(self, report, **spent):
        job = self.jobs.claim(claim_by())
        end = AttemptEnd(outcome="committed", report=report, spent=spent)
        self.jobs.finish(job.id, job.fence, end, state="succeeded")
        return job

    @property
    def table(self):
        return self.tables.listed()[0]


class InlineReader(BackgroundReader):
    """Reads tables when it is told to, in this process."""

    def __init__(self, *args):
        super().__init__(*args)
        self.requested = []
        self.read = 0

    def request(self, table_id, spec):
        self.requested.append((table_id, spec))

    def run(self, read=read_table):
        for table_id, spec in self.requested:
            self.read += 1
            self._take_in(table_id, spec, read(spec))
        self.requested.clear()


@pytest.fixture
def service(database, tmp_path):
    return Service(database, tmp_path)


def append(table, count):
    for _ in range(count):
        table.append(ROWS)


def test_a_table_of_which_nothing_is_due_gets_no_job(service, clock):
    table = service.settle()
    append(table, 3)
    clock.advance(100)
    tick = service.scheduler.tick()
    assert (tick.looked_at, tick.assessed, tick.queued) == (1, 1, 0)
    assert (service.table.commits_since, service.table.assessed_version) == (0, 3)
    assert service.table.summary["file_count"] == 3
    clock.advance(100)
    tick = service.scheduler.tick()
    assert (tick.looked_at, tick.assessed, tick.queued) == (1, 0, 0)


def test_system_scores_has_each_ratio_of_each_step_against_its_threshold(service, clock):
    table = service.settle()
    append(table, 5)
    clock.advance(100)
    service.scheduler.tick()

    rows = read_system_table(service.database, "scores", max_rows=100).to_pylist()
    found = {row["measure"]: row for row in rows}
    assert len(rows) == len(found)
    assert {(row["step"], name, row["setting"]) for name, row in found.items()} == {
        (step, name, setting) for step, names in MEASURES.items() for name, setting in names.items()
    }
    due = {name: (row["value"], row["threshold"]) for name, row in found.items() if row["is_due"]}
    assert due == {"small_files_of_a_partition": (5.0, 4.0)}
    small = found["small_files_of_a_partition"]
    assert (small["ratio"], small["table"], small["table_id"]) == (1.25, "a", service.table.id)
    assert small["step_score"] == pytest.approx(small["benefit_seconds"] / small["core_seconds"])
    assert json.loads(small["reasons"]) == [
        "5 small files, compaction would save 4 (due from 4 in a partition)"
    ]
    assert found["commits_since_checkpoint"]["ratio"] == 0.6
    assert found["seconds_since_vacuum"]["value"] == 100.0
    if not service.database.is_sqlite:
        check_the_view(service.database, rows)


def check_the_view(database, rows):
    """The view of PostgreSQL has the same rows."""
    create_views(database)
    with database.transaction() as connection:
        stored = connection.execute(text("SELECT * FROM lakehand_system.scores")).mappings().all()
        connection.execute(text("DROP SCHEMA lakehand_system CASCADE"))
    assert [{**row, "reasons": json.dumps(row["reasons"])} for row in stored] == rows


def test_what_is_due_is_queued_with_its_score_and_reasons(service, clock):
    table = service.settle()
    append(table, 5)
    clock.advance(100)
    assert service.scheduler.tick().queued == 1
    job = service.jobs.claim(claim_by())
    assert job.trigger == "commits"
    assert job.reasons == [
        "version 5",
        "5 small files, compaction would save 4 (due from 4 in a partition)",
    ]
    assert job.score > 0
    assert job.expected["steps"].keys() == {"compact"}
    assert job.expected["core_seconds"] > 0
    assert job.queued_at - job.rank_at == pytest.approx(head_start(job.score))
    shown = service.table.summary
    assert shown["partitions"][0]["small_file_count"] == 5
    assert (shown["score"], shown["ratio"]) == (job.score, 1.25)
    assert service.table.health_score < 100


def test_a_job_that_a_notification_queued_gets_its_score_from_the_next_look(service, clock):
    table = service.settle()
    append(table, 5)
    config = service.scheduler.config
    notifications = Notifications(
        config, service.database, jobs=service.jobs, tables=service.tables
    )
    clock.advance(10)
    notifications.receive(Notification(url=service.table.url, version=5))
    clock.advance(1)
    tick = service.scheduler.tick()
    assert (tick.looked_at, tick.queued) == (1, 0)
    job = service.jobs.claim(claim_by())
    assert (job.trigger, job.score > 0) == ("commits", True)
    assert job.queued_at - job.rank_at == pytest.approx(head_start(job.score))
    assert job.expected["steps"].keys() == {"compact"}
    assert job.reasons[1].startswith("5 small files")


def test_only_new_commits_are_read(service, clock, monkeypatch):
    table = service.settle()
    append(table, 3)
    clock.advance(100)
    service.scheduler.tick()
    read, original = [], summaries.read_commit

    def counting(store, version):
        read.append(version)
        return original(store, version)

    monkeypatch.setattr(summaries, "read_commit", counting)
    append(table, 1)
    clock.advance(100)
    service.scheduler.tick()
    assert read == [4]


def test_a_vacuum_becomes_due_though_nothing_changes(service, clock):
    table = service.settle()
    append(table, 2)
    table.overwrite(ROWS)
    clock.advance(700)
    assert service.scheduler.tick().queued == 0
    clock.advance(DAY)
    assert service.scheduler.tick().queued == 1
    job = service.finish(DONE)
    assert (job.trigger, list(job.expected["steps"])) == ("time", ["vacuum", "clean_logs"])
    assert any(reason.startswith("2 files") for reason in job.reasons)
    clock.advance(2 * DAY)
    assert service.scheduler.tick().queued == 0
    assert service.table.summary["removed_bytes"] == 0


def test_files_within_the_retention_are_left_to_the_next_vacuum(service, clock):
    table = service.settle()
    append(table, 1)
    table.overwrite(ROWS)
    clock.advance(700)
    service.scheduler.tick()
    for _ in range(2):
        clock.advance(DAY)
        assert service.scheduler.tick().queued == 1
        report = {"retention_seconds": 1.5 * DAY}
        step = {"step": "vacuum", "outcome": "nothing_to_do", "report": report}
        service.finish({"steps": [step, DONE["steps"][1]]})
    clock.advance(2 * DAY)
    assert service.scheduler.tick().queued == 0


def test_forecasts_are_calibrated_by_the_jobs_that_ended(service, clock):
    table = service.settle()
    append(table, 5)
    clock.advance(100)
    service.scheduler.tick()
    groups = {"planned": 4, "dropped": 1}
    report = {"outcome": "committed", "duration_ms": 900.0, "groups": groups}
    other = {"outcome": "nothing_to_do", "duration_ms": 100.0}
    steps = [
        {"step": "compact", "outcome": "committed", "report": report},
        {"step": "checkpoint", "outcome": "nothing_to_do", "report": other},
    ]
    job = service.finish({"steps": steps}, core_seconds=10.0)
    forecast = job.expected["steps"]["compact"]["forecast_core_seconds"]
    learned = service.summaries.calibrations()
    assert learned.keys() == {"compact"}
    assert learned["compact"].factor == pytest.approx(min(20.0, 9.0 / forecast))
    stored = service.summaries.get(service.table.id)
    assert stored.factors["compact"] == pytest.approx(learned["compact"].factor)
    assert stored.lost_share == pytest.approx(0.2 * 0.25)
    append(table, 3)
    clock.advance(100)
    service.scheduler.tick()
    # A table that loses rewrites to its writers is left alone for some time.
    clock.advance(3600)
    again = service.jobs.claim(claim_by()).expected["steps"]["compact"]
    assert again["core_seconds"] == pytest.approx(
        again["forecast_core_seconds"] * learned["compact"].factor
    )


def clean_log(service, table):
    """Leave a log that only a checkpoint tells all of."""
    table.checkpoint()
    (service.root / "a" / "_delta_log" / f"{0:020}.json").unlink()


def test_a_table_whose_commits_are_gone_is_read_once_and_then_decided(service, clock):
    table = service.create()
    append(table, 5)
    clean_log(service, table)
    assert service.scheduler.tick().queued == 0
    assert service.table.assessed_at is None
    service.reader.run()
    tick = service.scheduler.tick()
    assert (tick.looked_at, tick.queued) == (1, 1)
    job = service.finish(DONE)
    assert (job.trigger, "compact" in job.expected["steps"]) == ("found", True)
    append(table, 3)
    clock.advance(100)
    service.scheduler.tick()
    assert (service.reader.read, service.reader.requested) == (1, [])
    assert service.table.summary["file_count"] == 8


def test_a_table_with_very_many_files_is_read_by_another_process(service, clock, monkeypatch):
    monkeypatch.setattr(summaries, "MOST_FILES", 3)
    table = service.create()
    append(table, 5)
    service.scheduler.tick()
    service.reader.run()
    assert service.scheduler.tick().queued == 1
    job = service.finish(DONE)
    assert job.expected["steps"]["compact"]["files"] == 4
    assert service.summaries.get(service.table.id).summary.files.keys.size == 0
    append(table, 1)
    clock.advance(100)
    assert service.scheduler.tick().queued == 0
    assert service.reader.requested == []
    append(table, 3)
    clock.advance(600)
    service.scheduler.tick()
    service.reader.run()
    assert service.scheduler.tick().queued == 1
    assert service.reader.read == 2


def test_a_table_that_cannot_be_read_gets_a_job_that_says_why(service):
    table = service.create()
    append(table, 1)
    clean_log(service, table)
    broken = {"error": {"code": "CORRUPT_FILE", "message": "the checkpoint is damaged"}}
    service.scheduler.tick()
    service.reader.run(lambda _spec: broken)
    assert service.scheduler.tick().queued == 1
    job = service.jobs.claim(claim_by())
    assert job.reasons == ["version 1", "not assessed: the run finds out what is due"]
    stored = service.summaries.get(service.table.id)
    assert stored.error["message"] == "the checkpoint is damaged"


def test_a_commit_that_cannot_be_read_gets_a_job_that_says_why(service, clock):
    service.configure(schedule={"verify": "0 4 * * *"})
    service.settle()
    (service.root / "a" / "_delta_log" / f"{1:020}.json").write_text("no commit")
    clock.advance(700)
    assert service.scheduler.tick().queued == 1
    job = service.jobs.claim(claim_by())
    assert job.reasons[1].startswith("not assessed: version 1 of the log")
    assert service.table.scheduled["verify"]["at"] > clock.now().timestamp()


def test_a_clustered_table_is_left_to_the_run(service, clock):
    table = service.settle(name="a")
    append(table, 2)
    table.cluster(by=["id"], full=True, quiet_period="0s", engine="local")
    clock.advance(700)
    assert service.scheduler.tick().queued == 1
    assert service.jobs.claim(claim_by()).reasons[1:] == ["clustered: the run measures how well"]


def test_a_replaced_table_is_assessed_again(service, clock):
    table = service.settle()
    append(table, 5)
    clock.advance(100)
    service.scheduler.tick()
    service.finish(DONE)
    shutil.rmtree(service.root / "a")
    service.create()
    clock.advance(100)
    service.scheduler.tick()
    assert (service.table.version, service.table.summary["file_count"]) == (0, 0)


def test_numbers_are_kept_for_the_curve_once_an_hour(service, clock, database):
    table = service.settle()
    for _ in range(4):
        append(table, 1)
        clock.advance(1000)
        service.scheduler.tick()
    with database.reading() as connection:
        rows = connection.execute(MEASUREMENTS.select()).all()
    assert [row.file_count for row in rows] == [0, 4]


def test_other_settings_are_in_force_at_the_next_assessment(service, clock):
    table = service.settle()
    append(table, 3)
    clock.advance(100)
    assert service.scheduler.tick().queued == 0
    service.configure(automatic_min_files=2)
    append(table, 3)
    clock.advance(100)
    assert service.scheduler.tick().queued == 1


def test_a_table_is_read_by_another_process(database, tmp_path):
    service = Service(database, tmp_path)
    service.reader = BackgroundReader(database, service.tables)
    service.configure()
    table = service.create()
    append(table, 5)
    clean_log(service, table)
    service.scheduler.tick()
    try:
        deadline = time.monotonic() + 60
        while service.summaries.get(service.table.id).summary is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        service.reader.close()
    assert service.scheduler.tick().queued == 1
    stored = service.summaries.get(service.table.id)
    assert replace(stored.summary, files=None).checkpoint_version == 5
    assert len(stored.summary.files) == 5
