"""The scheduler finds tables, looks at them cheaply, and queues what their policies ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakehand
from lakehand._version import __version__
from lakehand.service.config import parse_config
from lakehand.service.job_specs import table_policy
from lakehand.service.notifications import Notification, Notifications
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd, JobRequest
from lakehand.service.store.service_state import ServiceState
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from support.job_stores import add_pool, claim_by

ROWS = pa.table({"id": [1]})


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def service(database, tmp_path):
    add_pool(database)
    return Service(database, tmp_path)


class Service:
    """A scheduler over tables below a directory."""

    def __init__(self, database, tmp_path):
        self.root = tmp_path / "lake"
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.database = database
        self.configure()

    def configure(self, **policy):
        document = {
            "source": [{"name": "lake", "include": [str(self.root)], "every": "1m"}],
            "policy": {"default": {"check_after": {"commits": 3, "time": "10m"}, **policy}},
        }
        self.scheduler = Scheduler(
            parse_config(document),
            self.database,
            jobs=self.jobs,
            tables=self.tables,
            workers=WorkerRegistry(self.database),
        )

    def notifications(self):
        config = self.scheduler.config
        return Notifications(config, self.database, jobs=self.jobs, tables=self.tables)

    def create(self, name, **options):
        return lakehand.create_table(self.root / name, ROWS.schema, **options)

    def finish_all(self):
        ended = []
        while (job := self.jobs.claim(claim_by())) is not None:
            self.jobs.finish(job.id, job.fence, AttemptEnd(outcome="committed"), state="succeeded")
            ended.append((job.verb, job.trigger))
        return ended


def test_tables_are_found_and_maintained_once(service):
    service.create("a")
    service.create("b.lance", format="lance")
    tick = service.scheduler.tick()
    assert (tick.found, tick.looked_at, tick.queued, tick.errors) == (2, 2, 2, [])
    assert service.finish_all() == [("maintain", "found")] * 2
    assert service.scheduler.tick().queued == 0


def test_commits_are_counted_between_looks(service, clock):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    for number in range(3):
        table.append(ROWS)
        clock.advance(100)
        service.scheduler.tick()
        assert service.finish_all() == ([("maintain", "commits")] if number == 2 else [])


def test_few_commits_are_enough_after_some_time(service, clock):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    table.append(ROWS)
    clock.advance(700)
    service.scheduler.tick()
    assert service.finish_all() == [("maintain", "time")]


def test_the_commit_that_lifts_a_hold_queues_the_verb(service, clock):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    (known,) = service.tables.listed()
    digest = table_policy(service.scheduler.config, known).digest
    error = {"code": "CORRUPT_LOG"}
    service.tables.hold(known.id, "maintain", error, job_id=1, lakehand=__version__, policy=digest)
    table.append(ROWS)
    clock.advance(700)
    service.scheduler.tick()
    assert service.finish_all() == [("maintain", "time")]


def test_a_quiet_table_is_looked_at_ever_later(service, clock):
    service.create("a")
    waits = []
    for _ in range(200):
        service.scheduler.tick()
        waits.append(service.tables.listed()[0].look_every)
        clock.advance(waits[-1])
    assert waits[0] == 60
    assert waits == sorted(waits)
    assert waits[-1] == 3600


def test_a_version_that_does_not_exist_does_not_hide_later_ones(service, clock):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    service.notifications().receive(Notification(url=table.url, version=10**15))
    assert service.finish_all() == [("maintain", "commits")]
    for _ in range(4):
        table.append(ROWS)
        clock.advance(100)
        service.scheduler.tick()
    assert service.tables.listed()[0].version == 4
    assert service.finish_all() == [("maintain", "commits")]


def test_a_notified_table_is_maintained_when_its_time_has_come(service, clock):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    for _ in range(50):  # It has been quiet for long, and is looked at once in an hour.
        clock.advance(3600)
        service.scheduler.tick()
    table.append(ROWS)
    service.notifications().receive(Notification(url=table.url, version=1))
    assert service.finish_all() == [("maintain", "time")]
    table.append(ROWS)
    assert service.notifications().receive(Notification(url=table.url, version=2)) == "noted"
    clock.advance(601)
    service.scheduler.tick()
    assert service.finish_all() == [("maintain", "time")]


def test_a_notification_during_a_tick_is_heard_at_the_next_one(service, clock, monkeypatch):
    table = service.create("a")
    service.scheduler.tick()
    service.finish_all()
    look = service.tables.looked_all

    def notify_first(looks):
        service.notifications().receive(Notification(url=table.url, version=None))
        look(looks)

    monkeypatch.setattr(service.tables, "looked_all", notify_first)
    clock.advance(100)
    assert service.scheduler.tick().looked_at == 1
    monkeypatch.undo()
    clock.advance(1)
    assert service.scheduler.tick().looked_at == 1
    clock.advance(1)
    assert service.scheduler.tick().looked_at == 0


def test_a_disabled_policy_queues_nothing(service):
    service.create("a")
    service.configure(enabled=False)
    assert service.scheduler.tick().queued == 0


def test_steps_that_a_policy_leaves_out_are_skipped(service):
    service.create("a")
    service.configure(steps=["compact", "vacuum"])
    service.scheduler.tick()
    job = service.jobs.claim(claim_by())
    assert job.options["skip"] == ["checkpoint", "clean_logs", "cluster"]


def test_a_scheduled_verb_is_queued_at_its_time(service, clock):
    service.create("a")
    service.configure(schedule={"verify": "0 4 * * *"})
    queued = []
    for _ in range(30):
        service.scheduler.tick()
        queued += [
            (verb, clock.now().hour) for verb, _ in service.finish_all() if verb != "maintain"
        ]
        clock.advance(3600)
    assert queued == [("verify", 4), ("verify", 4)]


def test_a_table_that_cannot_be_reached_does_not_stop_the_others(service):
    service.create("a")
    gone, _ = service.tables.add(FoundTable(url="file:///nowhere/at/all", format="delta"))
    tick = service.scheduler.tick()
    assert (tick.looked_at, tick.queued) == (2, 1)
    table = service.tables.get(gone.id)
    assert (table.last_error["code"], table.error_count) == ("NOT_A_TABLE", 1)
    assert table.look_every > 60


def test_a_table_that_is_gone_loses_its_jobs(service, clock):
    service.create("a")
    service.scheduler.tick()
    (job,) = service.jobs.listed(states=["queued"])
    (service.root / "a" / "_delta_log").rename(service.root / "elsewhere")
    clock.advance(61)
    assert service.scheduler.tick().gone == 1
    assert service.jobs.get(job.id).outcome == "table_gone"


def test_dead_jobs_are_freed(service, clock):
    service.create("a")
    service.scheduler.tick()
    job = service.jobs.claim(claim_by(lease_seconds=60))
    clock.advance(61)
    assert service.scheduler.tick().freed == 1
    assert service.jobs.get(job.id).state == "queued"


def test_a_paused_service_finds_and_queues_nothing(service):
    state = ServiceState(service.database)
    service.create("a")
    state.pause(by="ann")
    tick = service.scheduler.tick()
    assert (tick.found, tick.looked_at, tick.queued) == (0, 0, 0)
    state.resume(by="ann")
    assert service.scheduler.tick().queued == 1


def test_jobs_start_in_their_window_and_move_to_the_next_one(service, clock):
    service.create("a")
    service.configure(windows=[{"cron": "0 22 * * *", "for": "2h"}])
    clock.advance((datetime(2030, 1, 1, 12, tzinfo=UTC) - clock.now()).total_seconds())
    service.scheduler.tick()
    assert service.jobs.claim(claim_by()) is None
    clock.advance(10 * 3600)  # It is 22 o'clock.
    job = service.jobs.claim(claim_by(lease_seconds=9 * 3600))
    assert job.runs_until == clock.now().timestamp() + 2 * 3600
    assert service.jobs.beat(job.id, job.fence, lease_seconds=9 * 3600, progress=None) is None
    clock.advance(2 * 3600)  # The window closes: the job is wound down, and waits for the next one.
    wish = service.jobs.beat(job.id, job.fence, lease_seconds=9 * 3600, progress=None)
    assert wish == "wind_down"
    end = AttemptEnd(outcome="stopped_early")
    service.jobs.requeue(job.id, job.fence, end, waits_for="turn", counts=False)
    service.scheduler.tick()
    assert service.jobs.claim(claim_by()) is None
    clock.advance(22 * 3600)
    assert service.jobs.claim(claim_by()).id == job.id


def test_what_is_asked_for_by_hand_runs_outside_of_windows(service, clock):
    table = service.create("a")
    service.configure(windows=[{"cron": "0 22 * * *", "for": "2h"}])
    clock.advance((datetime(2030, 1, 1, 12, tzinfo=UTC) - clock.now()).total_seconds())
    service.scheduler.tick()
    table_id = service.tables.find(table.url).id
    asked = JobRequest(table_id=table_id, verb="maintain", trigger="manual", asked_by="me")
    service.jobs.enqueue(asked)
    assert service.jobs.claim(claim_by()).verb == "maintain"


def test_another_policy_moves_the_jobs_that_wait_for_a_window(service, clock):
    service.create("a")
    service.configure(windows=[{"cron": "0 22 * * *", "for": "2h"}])
    clock.advance((datetime(2030, 1, 1, 12, tzinfo=UTC) - clock.now()).total_seconds())
    service.scheduler.tick()
    assert service.jobs.claim(claim_by()) is None
    config = service.scheduler.config
    policy = replace(config.policies[0], windows=())
    service.scheduler.apply(replace(config, policies=(policy,)))
    service.scheduler.tick()
    assert service.jobs.claim(claim_by()) is not None


def test_a_source_without_tables_is_reported_once(service, clock, caplog):
    service.scheduler.tick()
    clock.advance(100)
    service.scheduler.tick()
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"no table was found in {service.root}; check the path"]
    service.create("a")
    clock.advance(100)
    assert service.scheduler.tick().found == 1
