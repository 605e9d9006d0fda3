"""The scheduler: finds tables, looks at them, and queues what is due. One process leads.

A look is one listing of the log; no table is opened here. Only new commits are read, and from what
they add up to follows whether something is due, and how much it is worth.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import describe_error
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.service.assessments import Assessor
from lakehand.service.discovery import Discovered, discover, register_found
from lakehand.service.job_specs import storage_options, table_policy
from lakehand.service.job_states import LANE_OF, backoff_seconds, describe_losses
from lakehand.service.run_metrics import Increment
from lakehand.service.scores import OVERDUE_SECONDS, TableScore, head_start
from lakehand.service.spending import can_start_again, day_of
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.job_claims import configure_pools
from lakehand.service.store.service_metrics import MetricTotals
from lakehand.service.store.service_state import ServiceState
from lakehand.service.triggers import job_request, next_window, state_after

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.assessments import Look
    from lakehand.service.config import ServiceConfig, SourceSection
    from lakehand.service.policies import TablePolicy
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.records import JobRequest
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry
    from lakehand.service.table_reader import BackgroundReader

#: How much later than the last time a table is looked at that has not changed.
_LOOK_STEP = 0.5
#: Tables that are looked at in one tick, and at the same time.
LOOKS_PER_TICK, _LOOKS_AT_ONCE = 500, 16
#: When a cron expression is due that has no further time.
_NEVER = 9_999_999_999.0
#: What a look changes after which nothing is due.
_NOTHING_DUE = {"version", "commits_since", "bytes_since", "policy", "look_every"}
#: Seconds between two looks for jobs that have waited too long.
_PROMOTE_EVERY = 60.0
#: A worker that was silent for this many leases is lost.
_LEASES_SILENT = 3
_logger = get_logger(__name__)


@dataclass(slots=True)
class Tick:
    """What one tick did."""

    found: int = 0
    gone: int = 0
    looked_at: int = 0
    assessed: int = 0
    queued: int = 0
    freed: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)


class Scheduler:
    """Keeps the queue filled. All that it does may be done twice: it costs work, and no more."""

    def __init__(
        self,
        config: ServiceConfig,
        database: Database,
        *,
        jobs: JobQueue,
        tables: TableRegistry,
        workers: WorkerRegistry,
        reader: BackgroundReader | None = None,
    ) -> None:
        self.config = config
        self._assessor = Assessor(config, database, reader=reader)
        self._database = database
        self._jobs = jobs
        self._tables = tables
        self._workers = workers
        self._totals = MetricTotals(database)
        #: When each source was listed last, by its name.
        self._listed_at: dict[str, float] = {}
        self._promoted_at = 0.0
        #: Sources in which no table was found, by name.
        self._empty: set[str] = set()

    def tick(self) -> Tick:
        """Do all that is due now."""
        done = Tick()
        self.tend_queue(done)
        self.discover(done)
        self.look(done)
        return done

    def apply(self, config: ServiceConfig) -> None:
        """Go on with another configuration: its pools, sources and policies hold from now on."""
        configure_pools(self._database, config.pools)
        changed = {source for source in config.sources if source not in self.config.sources}
        for source in changed:
            self._listed_at.pop(source.name, None)
        self.config = config
        self._assessor.apply(config)
        self._jobs.close_windows()
        self._tables.look_at_all()

    def tend_queue(self, done: Tick) -> None:
        """Let jobs go on whose worker died, whose window or budget is open again, or that are late.

        Every scheduler may do this, not only the leader: a job must not wait for one.
        """
        self.free_dead(done)
        self.move_to_next_windows()
        self.end_budget_waits()
        now = self._database.time()
        if abs(now - self._promoted_at) >= _PROMOTE_EVERY:
            self._promoted_at = now
            self._jobs.promote_overdue(OVERDUE_SECONDS)

    def free_dead(self, done: Tick) -> None:
        """Put back the jobs of dead workers."""
        configure_pools(self._database, self.config.pools)
        done.freed += len(self._jobs.free_dead())
        reached(Step.JOBS_FREED)
        lease = self.config.service.lease.total_seconds()
        self._workers.forget_lost(silent_seconds=_LEASES_SILENT * lease)

    def move_to_next_windows(self) -> int:
        """Give queued jobs whose window has closed the next one; return how many."""
        now = self._database.time()
        jobs = self._jobs.out_of_window()
        for job in jobs:
            policy = table_policy(self.config, self._tables.get(job.table_id)).policy
            opens_at, closes_at = next_window(self.config, policy, now)
            self._jobs.move_window(job, opens_at=opens_at, closes_at=closes_at)
        return len(jobs)

    def end_budget_waits(self) -> int:
        """Let jobs start whose budget has something left again; return how many."""
        budgets = BudgetStore(self._database)
        jobs = budgets.waiting_jobs()
        if not jobs:
            return 0
        day, _ = day_of(self.config, self._database.time())
        tables = {}
        for job in jobs:
            table = self._tables.get(job.table_id)
            tables[table.id] = (table, table_policy(self.config, table).policy)
        started = can_start_again(self.config, jobs, tables, budgets.of_day(day), day)
        budgets.end_waits(started)
        return len(started)

    def is_paused(self) -> bool:
        """Whether the whole service is paused: dead jobs are put back, and nothing else is done."""
        return ServiceState(self._database).pause_now() is not None

    # -- discovery ------------------------------------------------------------------------------

    def discover(self, done: Tick) -> None:
        """List the sources whose time has come."""
        if self.is_paused():
            return
        now = self._database.time()
        for source in self.config.sources:
            # By amount: the clock may have gone back since.
            if abs(now - self._listed_at.get(source.name, 0.0)) < source.every.total_seconds():
                continue
            self._listed_at[source.name] = now
            self._discover(source, done)

    def _discover(self, source: SourceSection, done: Tick) -> None:
        began = time.monotonic()
        found = discover(source, self.storage_options)
        done.errors += found.errors
        self._report_empty(source, found)
        new, gone = register_found(self._tables, found, source=source.name)
        done.gone += len(gone)
        done.found += new
        name = {"source": source.name}
        outcome = "complete" if found.is_complete else "failed"
        self._totals.add(
            Increment("discoveries", {**name, "outcome": outcome}),
            Increment("discovery_seconds", name, time.monotonic() - began),
        )
        reached(Step.TABLES_FOUND)
        for error in found.errors:
            log_event(_logger, logging.WARNING, "discovery_failed", "%s", error["message"])

    def _report_empty(self, source: SourceSection, found: Discovered) -> None:
        """Warn once of a source without tables: its path may be misspelt."""
        if found.tables or found.errors:
            self._empty.discard(source.name)
        elif source.name not in self._empty:
            self._empty.add(source.name)
            message = "no table was found in %s; check the path"
            places = ", ".join(source.include)
            log_event(_logger, logging.WARNING, "no_table_found", message, places)

    def storage_options(self, url: str) -> Mapping[str, str] | None:
        """Return the options of the storage section that a URL belongs to."""
        return storage_options(self.config, url)

    # -- looks ----------------------------------------------------------------------------------

    def look(self, done: Tick) -> None:
        """Look at the tables whose time has come."""
        if self.is_paused():
            return
        now = self._database.time()
        looked, failed = done.looked_at, len(done.errors)
        self._look_at(self._tables.to_look_at(limit=LOOKS_PER_TICK), done, now)
        looked, failed = done.looked_at - looked, len(done.errors) - failed
        if looked:
            self._totals.add(
                Increment("table_looks", {"result": "failed"}, failed),
                Increment("table_looks", {"result": "succeeded"}, looked - failed),
            )

    def _look_at(self, tables: Sequence[RegisteredTable], done: Tick, now: float) -> None:
        """Look whether tables have new commits, and queue what is due."""
        if not tables:
            return
        nothing_due, looks = [], []
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as threads:
            seen = threads.map(lambda table: self._seen(table, now), tables)
            for table, look in zip(tables, seen, strict=True):
                done.looked_at += 1
                if isinstance(look, dict):
                    self._tables.failed_to_look(table.id, look, look_every=self._later(table))
                    done.errors.append({"url": table.url, **look})
                    continue
                looks.append(look)
                if (values := self._take_in(table, look, done, now)) is not None:
                    nothing_due.append(values)
        done.assessed += sum(look.saved is not None for look in looks)
        self._assessor.save(looks)
        # A job that a notification queued has no score yet; of others it may have grown.
        self._jobs.rescore([_rescored(look) for look in looks if look.saved and not look.trigger])
        self._tables.looked_all(nothing_due)
        reached(Step.TABLE_LOOKED_AT)

    def _seen(self, table: RegisteredTable, now: float) -> Look | dict[str, Any]:
        """Return what a look at a table found, or its error: the others are not affected."""
        try:
            return self._assessor.look(table, now)
        except Exception as error:  # noqa: BLE001  whatever it is, it is of one table
            return describe_error(error)

    def _take_in(
        self, table: RegisteredTable, look: Look, done: Tick, now: float
    ) -> dict[str, Any] | None:
        """Queue what a table needs; return what to note of a poll if nothing is due."""
        policy, version = look.applied.policy, look.version
        # With a job, and where nothing is due, counting starts again.
        decided = None if look.is_pending else look.trigger
        values = state_after(look.changes, decided, now)
        if not policy.enabled:
            self._jobs.cancel_queued(table.id, outcome="disabled")
        if look.is_due:
            trigger = look.trigger or "time"
            done.queued += self._enqueue(
                table, look.applied, "maintain", trigger, version, now, score=look.score
            )
        elif (
            decided is None
            and table.assessed_version is not None
            and version < table.assessed_version
        ):
            # The table was replaced by a new one, or a notification named a version too high.
            values["assessed_version"] = version
        soon = self.config.service.poll_interval.total_seconds()
        is_busy = version != table.version or (policy.enabled and look.changes.commits > 0)
        look_every = soon if is_busy else self._later(table)
        if policy.enabled and policy.schedule:
            queued, scheduled = self._enqueue_scheduled(table, look.applied, now)
            done.queued += queued
            values["scheduled"] = scheduled
            due = min(next_due["at"] for next_due in scheduled.values())
            look_every = max(0.0, min(look_every, due - now))
        values |= {"policy": policy.name, "look_every": look_every}
        return self._noted(table, values)

    def _noted(self, table: RegisteredTable, values: dict[str, Any]) -> dict[str, Any] | None:
        """Note what a look found, or return it if it can be noted with that of other tables."""
        if values.keys() <= _NOTHING_DUE:
            before = {"version_before": table.version, "commits_before": table.commits_since}
            return {"table": table.id, "due_at": table.look_at, **before, **values}
        values |= {"last_error": None, "error_count": 0}
        self._tables.looked(table.id, version_before=table.version, **values)
        reached(Step.TABLE_LOOKED_AT)
        return None

    def _later(self, table: RegisteredTable) -> float:
        """Return after how long to look again at a table that has not changed: ever later."""
        service = self.config.service
        soon = service.poll_interval.total_seconds()
        later = max(soon, table.look_every) + _LOOK_STEP * soon
        return min(max(soon, service.max_poll_interval.total_seconds()), later)

    def _enqueue(
        self,
        table: RegisteredTable,
        applied: TablePolicy,
        verb: str,
        trigger: str,
        version: int | None,
        now: float,
        *,
        score: TableScore | None = None,
    ) -> int:
        held = self._tables.held_verbs(
            table.id, lakehand=__version__, policy=applied.digest, version=version
        )
        if verb in held:
            return 0
        request = job_request(
            self.config,
            table,
            applied.policy,
            verb=verb,
            trigger=trigger,
            version=version,
            now=now,
            score=score,
        )
        is_new = self._jobs.enqueue(self._back_off(request, now)).is_new
        reached(Step.JOB_ENQUEUED)
        return int(is_new)

    def _back_off(self, request: JobRequest, now: float) -> JobRequest:
        """Let a rewrite start later if the last ones of its table lost to writers."""
        if LANE_OF[request.verb] != "rewrite":
            return request
        losses = self._jobs.losses(request.table_id)
        delay = losses.last_at + backoff_seconds(losses.count, losses.core_seconds) - now
        if delay <= request.delay:
            return request
        details = {"details": describe_losses(losses.count)}
        return replace(request, delay=delay, waits_for="writers_busy", wait_details=details)

    def _enqueue_scheduled(
        self, table: RegisteredTable, applied: TablePolicy, now: float
    ) -> tuple[int, dict[str, dict[str, Any]]]:
        """Queue the verbs whose time has come; return how many, and when each is due next.

        What was due while no scheduler ran is queued once, late.
        """
        queued = 0
        scheduled = {}
        moment = datetime.fromtimestamp(now, UTC)
        for verb, schedule in applied.policy.schedule.items():
            known = table.scheduled.get(verb, {})
            at = known.get("at") if known.get("cron") == schedule.expression else None
            if at is not None and at <= now:
                queued += self._enqueue(table, applied, verb, "schedule", table.version, now)
            if at is None or at <= now:
                following = schedule.next_after(moment, self.config.service.time_zone)
                at = _NEVER if following is None else following.timestamp()
            scheduled[verb] = {"at": at, "cron": schedule.expression}
        return queued, scheduled


def _rescored(look: Look) -> dict[str, Any]:
    """Return what a queued job of a table is told of an assessment."""
    assert look.saved is not None  # noqa: S101  the caller has checked it
    score = look.score or TableScore()
    return {
        "table": look.saved.table_id,
        "for_verb": "maintain",
        "new_score": score.score,
        "new_expected": score.expected(),
        "new_reasons": [f"version {look.version}", *score.reasons],
        "new_head_start": head_start(score.score, importance=look.applied.policy.importance),
    }
