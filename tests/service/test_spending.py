"""Budgets and slices: what jobs may spend, reserved before and settled after, on real tables."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.errors import ConfigError
from lakehand.service.config import parse_config
from lakehand.service.job_main import work_done
from lakehand.service.job_specs import JobSpecs
from lakehand.service.scheduler import Scheduler
from lakehand.service.spending import NoBudgetLeftError, day_of, wanted_by
from lakehand.service.store.budgets import Budget, BudgetStore, find_short, share_left
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_waits import find_waits
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobWorker, WorkerOptions
from support.job_stores import add_pool, claim_by, request

SCHEMA = pa.schema({"part": pa.int64(), "id": pa.int64()})
PARTS, FILES = 8, 3


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


class Service:
    """A job store with the scheduler and the specs of a configuration, on a clock of its own."""

    def __init__(self, database, clock, tmp_path, document):
        add_pool(database)
        self.clock, self.tmp_path, self.database = clock, tmp_path, database
        self.config = parse_config(document)
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.workers, self.budgets = WorkerRegistry(database), BudgetStore(database)
        self.specs = JobSpecs(self.config, self.jobs, self.tables, self.budgets)
        self.scheduler = Scheduler(
            self.config, database, jobs=self.jobs, tables=self.tables, workers=self.workers
        )

    def add(self, name):
        table = lakehand.create_table(
            self.tmp_path / name, SCHEMA, partition_by=["part"], engine="local"
        )
        for number in range(FILES):
            rows = {"part": list(range(PARTS)), "id": [number] * PARTS}
            table.append(pa.table(rows, schema=SCHEMA))
        return self.tables.add(FoundTable(url=table.url, format="delta", name=name))[0]

    def of_today(self):
        day, _ = day_of(self.config, self.clock.now().timestamp())
        return {(one.scope, one.unit): one for one in self.budgets.of_day(day)}

    def work_until_idle(self, seconds=90):
        """Let a worker run all that may start now."""
        worker = JobWorker(
            self.jobs,
            self.tables,
            self.workers,
            spec_of=self.specs.of,
            options=WorkerOptions(slots=1, lease_seconds=600.0),
        )
        worker.start()
        try:
            for _ in range(seconds * 20):
                now = self.clock.now().timestamp()
                # In one listing: a job that is claimed between two would be in neither.
                listed = self.jobs.listed(states=["running", "queued"])
                if not any(job.state == "running" or job.not_before <= now for job in listed):
                    return
                time.sleep(0.05)
            raise AssertionError(self.jobs.listed())
        finally:
            worker.stop()
            assert worker.join(30)


def removed_bytes(path):
    """Return the bytes of all files that commits have removed."""
    sizes, removed = {}, 0
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                sizes[action["add"]["path"]] = action["add"]["size"]
            if "remove" in action:
                removed += sizes[action["remove"]["path"]]
    return removed


def test_a_budget_of_bytes_is_held_to_within_a_slice_and_the_rest_is_done_on_other_days(
    database, clock, tmp_path
):
    first = lakehand.create_table(tmp_path / "probe", SCHEMA, engine="local")
    first.append(pa.table({"part": [1], "id": [1]}, schema=SCHEMA))
    size = first.snapshot().total_bytes
    slice_bytes = 7 * size  # Two partitions of three files.
    allowed = 20 * size
    service = Service(
        database, clock, tmp_path,
        {
            "policy": {"default": {"slice_bytes": slice_bytes, "min_files": 2,
                                   "quiet_period": "0s", "engine": "local"}},
            "budget": {"all": {"bytes_per_day": allowed}},
        },
    )  # fmt: skip
    tables = [service.add(name) for name in ("a", "b")]
    for table in tables:
        service.jobs.enqueue(request(table.id))
    spent, days = [], 0
    while service.jobs.listed(states=["queued"]) and days < 6:
        service.work_until_idle()
        spent.append(service.of_today()["all", "bytes"].spent)
        assert service.of_today()["all", "bytes"].reserved == 0
        assert spent[-1] <= allowed + slice_bytes
        days += 1
        clock.advance(86_400)
        service.scheduler.end_budget_waits()
    assert 2 <= days <= 5
    assert sum(spent) == sum(removed_bytes(tmp_path / name) for name in ("a", "b"))
    for table in tables:
        snapshot = lakehand.open_table(table.url).snapshot()
        assert snapshot.file_count == PARTS
        assert lakehand.open_table(table.url).to_arrow().num_rows == PARTS * FILES
    assert {job.state for job in service.jobs.listed()} == {"succeeded"}


def test_one_huge_table_is_done_in_slices_between_which_others_have_their_turn(
    database, clock, tmp_path
):
    service = Service(
        database, clock, tmp_path,
        {"policy": {"default": {"slice_bytes": 3000, "min_files": 2, "quiet_period": "0s",
                                "engine": "local"}}},
    )  # fmt: skip
    huge, small = service.add("huge"), service.add("small")
    first = service.jobs.enqueue(request(huge.id)).job_id
    clock.advance(1)
    service.jobs.enqueue(request(small.id, head_start=0.5))
    service.work_until_idle()
    job = service.jobs.get(first)
    assert job.state == "succeeded"
    assert job.fence > 2, "it was claimed once per slice"
    assert job.attempt == 1, "a slice is no failed attempt"
    assert lakehand.open_table(huge.url).snapshot().file_count == PARTS


@pytest.fixture
def service(database, clock, tmp_path):
    document = {
        "service": {"time_zone": "Europe/Berlin"},
        "costs": {"core_hour": 3600.0, "gib_read": 1.0},
        "policy": {"default": {"slice_bytes": "1GiB"}},
        "budget": {
            "all": {"bytes_per_day": "3GiB"},
            "sales": {"match": ["sales*"], "bytes_per_day": "1536MiB", "core_hours_per_day": 1000},
        },
    }
    return Service(database, clock, tmp_path, document)


def registered(service, *names):
    return [
        service.tables.add(FoundTable(url=f"file:///lake/{name}", name=name))[0] for name in names
    ]


def claimed(service, table, verb="compact", **options):
    service.jobs.enqueue(request(table.id, verb, **options))
    return service.jobs.claim(claim_by())


def test_a_job_gets_what_is_left_and_the_next_one_waits_until_midnight(service):
    first, second, third = registered(service, "sales_a", "sales_b", "sales_c")
    spec = service.specs.of(claimed(service, first))
    assert (spec.settings["max_bytes_per_run"], spec.is_slice, spec.short_for) == (
        2**30, True, None,
    )  # fmt: skip
    spec = service.specs.of(claimed(service, second))
    assert spec.settings["max_bytes_per_run"] == 2**29
    assert spec.short_for > 0
    with pytest.raises(NoBudgetLeftError, match="sales") as caught:
        service.specs.of(claimed(service, third))
    now = service.clock.now().timestamp()
    midnight = datetime.fromtimestamp(now + caught.value.seconds, service.config.service.time_zone)
    assert (midnight.hour, midnight.minute) == (0, 0)
    assert service.of_today()["all", "bytes"].reserved == 1.5 * 2**30


def test_a_job_expects_few_bytes_and_reserves_few(service):
    (table,) = registered(service, "sales_a")
    spec = service.specs.of(claimed(service, table, expected={"bytes": 10 * 2**20}))
    assert spec.settings["max_bytes_per_run"] == 64 * 2**20
    assert service.of_today()["sales", "bytes"].reserved == 64 * 2**20


def test_verbs_that_rewrite_nothing_do_not_wait_for_bytes(service):
    (table,) = registered(service, "sales_a")
    service.budgets.allow("sales", "bytes", day_of(service.config, service.budgets.time())[0], 0)
    spec = service.specs.of(claimed(service, table, "verify"))
    assert not spec.is_slice
    assert "max_bytes_per_run" not in spec.settings


def test_a_limit_that_was_asked_for_by_hand_is_kept_if_it_is_smaller(service):
    small, large = registered(service, "a", "b")
    spec = service.specs.of(claimed(service, small, options={"max_bytes_per_run": "1MiB"}))
    assert (spec.is_slice, spec.options) == (False, {"max_bytes_per_run": "1MiB"})
    spec = service.specs.of(claimed(service, large, options={"max_bytes_per_run": "9GiB"}))
    assert (spec.is_slice, spec.options) == (True, {})


def test_jobs_that_wait_for_a_budget_start_when_it_has_something_left(service):
    first, second = registered(service, "sales_a", "sales_b")
    running = claimed(service, first)
    service.specs.of(running)
    waiting = claimed(service, second)
    end = AttemptEnd(outcome="no_budget", spent={"bytes": 0.0})
    service.jobs.requeue(
        waiting.id, waiting.fence, end, waits_for="budget", delay=9e3, counts=False,
        details={"details": "bytes of sales"},
    )  # fmt: skip
    day, _ = day_of(service.config, service.budgets.time())
    service.budgets.allow("sales", "bytes", day, 2**30)
    (wait, *_) = find_waits(service.database, [service.jobs.get(waiting.id)], silent_seconds=1e9)[
        waiting.id
    ]
    assert (wait.reason, wait.details) == ("budget", "bytes of sales")
    service.jobs.finish(
        running.id, running.fence, AttemptEnd(outcome="committed", spent={"bytes": 5.0}),
        state="succeeded",
    )  # fmt: skip
    assert service.scheduler.end_budget_waits() == 1
    assert service.jobs.claim(claim_by()).id == waiting.id


@pytest.mark.parametrize(
    ("granted", "left", "starts"),
    [
        (None, 2**28, True),
        (2**28, 2**28, False),
        (2**28, 2**29 - 1, False),
        (2**28, 2**29, True),
        (2**40, 9 * 2**30, True),
    ],
)
def test_a_job_whose_files_were_too_large_starts_with_twice_as_much(service, granted, left, starts):
    (table,) = registered(service, "sales_a")
    job = claimed(service, table)
    end = AttemptEnd(outcome="no_budget", spent={"bytes": 0.0})
    details = {"details": "too little is left today for its files", "granted_bytes": granted}
    service.jobs.requeue(
        job.id, job.fence, end, waits_for="budget", delay=9e3, counts=False, details=details
    )
    service.config = service.scheduler.config = replace(
        service.config, budgets=(replace(service.config.budgets[0], bytes_per_day=left),)
    )
    assert service.scheduler.end_budget_waits() == starts
    assert service.scheduler.end_budget_waits() == 0


def test_a_job_with_a_smaller_limit_of_its_own_does_not_wait_for_a_budget(service):
    """Its files are above its own limit: another budget would change nothing."""
    (table,) = registered(service, "sales_a")
    job = claimed(service, table, options={"max_bytes_per_run": "1MiB"})
    spec = replace(service.specs.of(job), short_for=9e3)
    report = {"outcome": "nothing_to_do", "remaining": {"groups": 1}}
    worker = JobWorker(service.jobs, service.tables, service.workers, spec_of=service.specs.of)
    worker._end_with_report(job, spec, report, {"bytes": 0.0})
    assert service.jobs.get(job.id).state == "succeeded"


amounts = st.sampled_from([0.0, 1.0, 10.0, 100.0, 1000.0])


@settings(max_examples=200, deadline=None)
@given(amounts, amounts, amounts, st.sampled_from([0.0, 0.125, 0.5]))
def test_a_budget_is_too_short_only_if_little_is_left_of_it(allowed, spent, wanted, least):
    budget = Budget(scope="a", unit="bytes", day="d", allowed=allowed, spent=spent)
    short = find_short([budget], {"bytes": wanted}, least)
    share = share_left(budget, {"bytes": wanted})
    assert 0 <= share <= 1
    assert share * wanted <= max(allowed - spent, 0.0) + 1e-9
    if short is None and wanted and least:
        assert share > 0
    if spent == 0 and allowed:
        assert short is None, "a whole day's budget is never too short"


def test_bytes_count_as_cost_and_processor_time():
    config = parse_config({"costs": {"core_hour": 0.0, "gib_read": 2.0, "gib_written": 3.0}})
    assert wanted_by(config, 2**30)["cost"] == 5.0
    assert wanted_by(config, 2**30)["core_seconds"] > wanted_by(config, 2**20)["core_seconds"] > 0


def test_a_verb_that_does_not_count_its_bytes_says_nothing_of_them():
    assert work_done({"outcome": "committed"}, "purge") == {}
    assert work_done({}, "compact") == {}
    assert work_done({"steps": []}, "maintain")["bytes"] == 0


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "limits nothing"),
        ({"bytes_per_day": "-1"}, "bytes_per_day"),
        ({"core_hours_per_day": -1}, "negative"),
        ({"byte_per_day": 1}, "unknown key"),
    ],
)
def test_a_wrong_budget_is_refused(budget, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"budget": {"all": budget}})


def test_days_of_budgets_begin_at_midnight_of_the_time_zone():
    config = parse_config({"service": {"time_zone": "Europe/Berlin"}})
    now = datetime(2026, 10, 24, 23, 30, tzinfo=UTC).timestamp()
    day, until = day_of(config, now)
    assert day == "2026-10-25"
    # The day on which the clock is moved has 25 hours, of which an hour and a half are over.
    assert until - now == 23.5 * 3600
