"""Random policies, windows, budgets and states: what is explained is what a slow model says.

A job goes the way of the service: its policy is chosen, it is queued, and a worker tries to start
it. The model knows none of that code. It ranks patterns by a list, looks at every minute for
windows, and adds up what is left of budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from lakehand.observe.clock import ManualClock
from lakehand.service.client_values import TableEntry
from lakehand.service.config import parse_config
from lakehand.service.job_specs import JobSpecs, table_policy
from lakehand.service.spending import budgets_of, budgets_today, day_of
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import BUDGETS
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.job_waits import find_waits
from lakehand.service.store.service_state import ServiceState
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from lakehand.service.table_explanation import explain_table
from lakehand.service.triggers import job_request
from lakehand.service.windows import windows_of
from lakehand.service.worker import JobWorker
from support.job_stores import add_pool, claim_by
from support.window_model import open_minutes

GIB = 2**30
#: Both changes of the clock, and a usual day.
DAYS = {
    "Europe/Berlin": ["2026-03-28", "2026-10-24"],
    "America/New_York": ["2026-03-07", "2026-10-31"],
    "America/St_Johns": ["2026-03-07", "2026-10-31"],
    "Pacific/Chatham": ["2026-04-04", "2026-09-26"],
    "Australia/Lord_Howe": ["2026-04-04", "2026-10-03"],
    "UTC": ["2026-06-01"],
}
NAME, URL = "orders", "file:///lake/sales/orders"
#: All patterns that match the table, the one that says most first; and some that do not match.
MATCHING = ["orders", "file:///lake/sales/orders", "file:///lake/sales/*", "file:///lake/**"]
OTHER = ["customers", "file:///lake/hr/**", "file:///lake/sales"]
SLICE = 8 * GIB
#: Days that the model looks ahead.
HORIZON = 2


@dataclass(frozen=True)
class State:
    """A random configuration, and a random state of the service."""

    zone: str
    day: str
    minute: int
    policies: dict
    budgets: dict
    spent: list
    is_table_paused: bool
    is_service_paused: bool
    has_worker: bool

    @property
    def now(self):
        start = datetime.fromisoformat(self.day).replace(tzinfo=UTC)
        return start + timedelta(minutes=self.minute)


crons = st.builds(
    "{} {} * * {}".format,
    st.sampled_from(["0", "30", "15"]),
    st.sampled_from(["2", "1", "22", "0,12", "*/6"]),
    st.sampled_from(["*", "*", "1-5", "0,6"]),
)
window_lists = st.lists(
    st.fixed_dictionaries({"cron": crons, "for": st.sampled_from(["1h", "7h", "24h"])}), max_size=2
)
patterns = st.lists(st.sampled_from(MATCHING + OTHER), min_size=1, max_size=2, unique=True)
policies = st.lists(
    st.fixed_dictionaries(
        {
            "match": patterns,
            "windows": window_lists,
            "quiet": window_lists,
            "enabled": st.sampled_from([True, True, True, False]),
        }
    ),
    max_size=3,
)
budgets = st.lists(
    st.fixed_dictionaries(
        {
            "match": st.lists(
                st.sampled_from(["**", "**", *MATCHING, *OTHER]), min_size=1, max_size=1
            ),
            "bytes_per_day": st.sampled_from(["2GiB", "16GiB", "16GiB", "1TiB"]),
        }
    ),
    min_size=1,
    max_size=2,
)


@st.composite
def states(draw):
    zone = draw(st.sampled_from(sorted(DAYS)))
    return State(
        zone=zone,
        day=draw(st.sampled_from(DAYS[zone])),
        minute=draw(st.integers(0, 2 * 1440)),
        policies={f"p{n}": one for n, one in enumerate(draw(policies))},
        budgets={f"b{n}": one for n, one in enumerate(draw(budgets))},
        spent=draw(st.lists(st.sampled_from([0.0, 0.95, 0.95, 1.0]), min_size=2, max_size=2)),
        is_table_paused=draw(st.sampled_from([False, False, False, True])),
        is_service_paused=draw(st.sampled_from([False, False, False, True])),
        has_worker=draw(st.sampled_from([True, True, True, False])),
    )


# -- the model ---------------------------------------------------------------------------------


def model_policy(state):
    """Return the name of the policy: the first in the list of patterns that one of them has."""
    for pattern in MATCHING:
        owners = [name for name, one in state.policies.items() if pattern in one["match"]]
        if owners:
            return owners[0]
    return "default"


def model_openings(state, config):
    """Return when jobs may run next and until when, by minutes; None: not within some days."""
    policy = next(one for one in config.policies if one.name == model_policy(state))
    windows = windows_of(policy, ZoneInfo(state.zone))
    is_open = open_minutes(windows, state.now, state.now + timedelta(days=HORIZON))
    first = next((n for n, one in enumerate(is_open) if one), None)
    if first is None:
        return None, None
    last = next((n for n in range(first, len(is_open)) if not is_open[n]), None)
    at = state.now.timestamp()
    return at + 60 * first, None if last is None else at + 60 * last


def model_short(state):
    """Return the names of the budgets that have too little left for a job, of those that apply."""
    sizes = {"2GiB": 2 * GIB, "16GiB": 16 * GIB, "1TiB": 1024 * GIB}
    found = set()
    for (name, one), spent in zip(state.budgets.items(), state.spent, strict=False):
        applies = one["match"][0] in ["**", *MATCHING]
        allowed = sizes[one["bytes_per_day"]]
        left = allowed - spent * allowed
        # It needs an eighth of its slice, or of a budget that is smaller.
        if applies and (left <= 0 or left < min(SLICE / 8, allowed / 8)):
            found.add(name)
    return found


def model_midnight(state):
    """Return when the next day begins, minute by minute."""
    zone, at = ZoneInfo(state.zone), state.now.replace(second=0)
    today = at.astimezone(zone).date()
    while at.astimezone(zone).date() == today:
        at += timedelta(minutes=1)
    return at.timestamp()


def model_reasons(state, config):
    """Return the reasons for which the job waits, in order; empty: it starts."""
    opens_at, _ = model_openings(state, config)
    is_closed = opens_at is None or opens_at > state.now.timestamp()
    found = []
    if state.is_table_paused:
        found.append("paused")
    if state.is_service_paused:
        found.append("paused")
    if is_closed:
        found.append("window")
    if not found and model_short(state):
        found.append("budget")
    return [*found, *([] if state.has_worker else ["no_worker"])]


# -- the service -------------------------------------------------------------------------------


class Service:
    """A job store with one table, and a worker."""

    def __init__(self, state):
        self.clock = ManualClock(state.now)
        self.database = open_database("sqlite://", clock=self.clock)
        self.config = parse_config(
            {
                "service": {"time_zone": state.zone},
                "policy": state.policies,
                "budget": state.budgets,
            }
        )
        add_pool(self.database)
        self.jobs, self.tables = JobQueue(self.database), TableRegistry(self.database)
        self.budgets, workers = BudgetStore(self.database), WorkerRegistry(self.database)
        self.table, _ = self.tables.add(FoundTable(url=URL, name=NAME, format="delta"))
        specs = JobSpecs(self.config, self.jobs, self.tables, self.budgets)
        self.worker = JobWorker(self.jobs, self.tables, workers, spec_of=specs.of)
        if state.has_worker:
            shown = {"host": "h", "pid": 1, "version": "0", "engines": ["local"], "slots": 1}
            workers.start(Worker(id="w", memory_bytes=2**62, pools=(), **shown))
        self._spend(state)
        if state.is_table_paused:
            self.tables.pause(self.table.id, by="ann")
        if state.is_service_paused:
            ServiceState(self.database).pause(by="ops")

    @property
    def now(self):
        return self.clock.now().timestamp()

    def _spend(self, state):
        day, _ = day_of(self.config, self.now)
        for budget, spent in zip(self.config.budgets, state.spent, strict=False):
            amount = budget.limits()["bytes"]
            self.budgets.allow(budget.name, "bytes", day, amount)
            with self.database.transaction() as connection:
                changed = update(BUDGETS).where(BUDGETS.c.scope == budget.name)
                connection.execute(changed.values(spent=spent * amount))

    def queue_and_try(self):
        """Queue a job as the scheduler does, and let the worker start it if it may."""
        policy = table_policy(self.config, self.table).policy
        what = {"verb": "maintain", "trigger": "commits", "version": 1, "now": self.now}
        wanted = job_request(self.config, self.table, policy, **what)
        number = self.jobs.enqueue(wanted).job_id
        job = self.jobs.claim(claim_by("w", engines=("local",)))
        is_started = job is not None and self.worker._begin(job) is not None
        return number, is_started

    def waits(self, number):
        found = find_waits(self.database, [self.jobs.get(number)], silent_seconds=180.0)
        return found.get(number, [])

    def explained(self):
        table = self.tables.get(self.table.id)
        today = budgets_today(
            self.budgets.of_day(day_of(self.config, self.now)[0]),
            day_of(self.config, self.now)[0],
            budgets_of(self.config, table),
        )
        entry = TableEntry(table=table, state="ok", policy="", held={})
        return explain_table(self.config, entry, now=self.now, jobs=(), budgets=today)


@settings(max_examples=20, deadline=None)
@given(states())
def test_a_job_waits_for_what_the_model_says_or_starts(state):
    service = Service(state)
    try:
        number, is_started = service.queue_and_try()
        expected = model_reasons(state, service.config)
        event(expected[0] if expected else "starts")
        waits = service.waits(number)
        if expected in ([], ["no_worker"]):
            assert is_started, "whoever claims it may start it"
            assert not waits
            return
        assert not is_started
        assert [wait.reason for wait in waits] == expected
        check_times(state, service, {wait.reason: wait for wait in waits})
    finally:
        service.database.close()


def check_times(state, service, waits):
    """Compare until when a job waits, and which budget is named."""
    if "window" in waits:
        opens_at, _ = model_openings(state, service.config)
        end = state.now.timestamp() + HORIZON * 86_400
        until = waits["window"].until
        assert until >= end if opens_at is None else until == pytest.approx(opens_at, abs=0.01)
    if "budget" in waits:
        assert waits["budget"].until == pytest.approx(model_midnight(state), abs=0.01)
        assert waits["budget"].details.removeprefix("bytes of ") in model_short(state)


@settings(max_examples=20, deadline=None)
@given(states())
def test_an_explanation_has_the_policy_window_and_budgets_of_the_model(state):
    service = Service(state)
    try:
        found = service.explained()
        assert found.choice.policy == model_policy(state)
        opens_at, closes_at = model_openings(state, service.config)
        now = state.now.timestamp()
        is_open = opens_at == now
        assert found.window.is_open == is_open
        if opens_at is not None:
            assert found.window.opens_at == (None if is_open else opens_at)
        if closes_at is not None:
            assert found.window.closes_at == closes_at
        applying = [
            name for name, one in state.budgets.items() if one["match"][0] in ["**", *MATCHING]
        ]
        assert [one.scope for one in found.budgets] == applying
        is_disabled = not state.policies.get(model_policy(state), {"enabled": True})["enabled"]
        obstacles = {kind for kind, _ in found.obstacles}
        assert ("disabled" in obstacles) == is_disabled
    finally:
        service.database.close()
