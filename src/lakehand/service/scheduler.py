"""The scheduler: finds tables, looks at them, and queues what is due. One process leads.

A look is one listing of the log; no table is opened here. What a table needs is decided by the job
itself, which runs `maintain` with the steps of its policy.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import NotATableError, describe_error
from lakehand.formats.optional import SupportsPolling
from lakehand.formats.registry import load_format
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.service.discovery import Discovered, discover
from lakehand.service.job_specs import storage_options, table_policy
from lakehand.service.store.job_claims import configure_pools
from lakehand.service.store.service_state import ServiceState
from lakehand.service.triggers import (
    changes_seen,
    find_trigger,
    job_request,
    next_window,
    state_after,
)
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.config import ServiceConfig, SourceSection
    from lakehand.service.policies import TablePolicy
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry

#: How much later than the last time a table is looked at that has not changed.
_LOOK_STEP = 0.5
#: Tables that are looked at in one tick, and at the same time.
_LOOKS_PER_TICK, _LOOKS_AT_ONCE = 500, 16
#: When a cron expression is due that has no further time.
_NEVER = 9_999_999_999.0
#: What a look changes after which nothing is due.
_NOTHING_DUE = {"version", "commits_since", "bytes_since", "policy", "look_every"}
#: A worker that was silent for this many leases is lost.
_LEASES_SILENT = 3
_logger = get_logger(__name__)


@dataclass(slots=True)
class Tick:
    """What one tick did."""

    found: int = 0
    gone: int = 0
    looked_at: int = 0
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
    ) -> None:
        self.config = config
        self._database = database
        self._jobs = jobs
        self._tables = tables
        self._workers = workers
        #: When each source was listed last, by its name.
        self._listed_at: dict[str, float] = {}
        #: Sources in which no table was found, by name.
        self._empty: set[str] = set()

    def tick(self) -> Tick:
        """Do all that is due now."""
        done = Tick()
        self.free_dead(done)
        self.move_to_next_windows()
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
        self._jobs.close_windows()
        self._tables.look_at_all()

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
        found = discover(source, self.storage_options)
        done.errors += found.errors
        self._report_empty(source, found)
        if found.is_complete:
            new, gone = self._tables.see(found.tables, source=source.name)
            done.gone += len(gone)
        else:
            # What could not be listed may hold tables that are known: none of them is gone.
            new = sum(self._tables.add(one, source=source.name)[1] for one in found.tables)
        done.found += new
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
        self._look_at(self._tables.to_look_at(limit=_LOOKS_PER_TICK), done, now)

    def _look_at(self, tables: Sequence[RegisteredTable], done: Tick, now: float) -> None:
        """Look whether tables have new commits, and queue what is due."""
        if not tables:
            return
        nothing_due = []
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as threads:
            for table, version in zip(tables, threads.map(self._seen, tables), strict=True):
                done.looked_at += 1
                if isinstance(version, dict):
                    self._tables.failed_to_look(table.id, version, look_every=self._later(table))
                    done.errors.append({"url": table.url, **version})
                elif (look := self._take_in(table, version, done, now)) is not None:
                    nothing_due.append(look)
        self._tables.looked_all(nothing_due)
        reached(Step.TABLE_LOOKED_AT)

    def _seen(self, table: RegisteredTable) -> int | dict[str, Any]:
        """Return the latest version of a table, or its error: the others are not affected."""
        try:
            return self._latest_version(table)
        except Exception as error:  # noqa: BLE001  whatever it is, it is of one table
            return describe_error(error)

    def _take_in(
        self, table: RegisteredTable, version: int, done: Tick, now: float
    ) -> dict[str, Any] | None:
        """Queue what a table needs; return what to note of a look after which nothing is due."""
        applied = table_policy(self.config, table)
        policy = applied.policy
        changes = changes_seen(table, version)
        trigger = find_trigger(table, policy, changes, now)
        values = state_after(changes, trigger, now)
        if not policy.enabled:
            self._jobs.cancel_queued(table.id, outcome="disabled")
        if trigger is not None:
            done.queued += self._enqueue(table, applied, "maintain", trigger, version, now)
        elif table.assessed_version is not None and version < table.assessed_version:
            # The table was replaced by a new one, or a notification named a version too high.
            values["assessed_version"] = version
        soon = self.config.service.poll_interval.total_seconds()
        is_busy = version != table.version or (policy.enabled and changes.commits > 0)
        look_every = soon if is_busy else self._later(table)
        if policy.enabled and policy.schedule:
            queued, scheduled = self._enqueue_scheduled(table, applied, now)
            done.queued += queued
            values["scheduled"] = scheduled
            due = min(next_due["at"] for next_due in scheduled.values())
            look_every = max(0.0, min(look_every, due - now))
        values |= {"policy": policy.name, "look_every": look_every}
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

    def _latest_version(self, table: RegisteredTable) -> int:
        table_format = load_format(table.format or "delta")
        store = open_store(table.url, self.storage_options(table.url))
        if not isinstance(table_format, SupportsPolling):
            return table_format.open(store).snapshot().version
        version = None
        if table.version is not None:
            version = table_format.latest_version(store, after=table.version - 1)
        if version is None:
            # The version that is known is not there: it was a wrong one, or of an earlier table.
            version = table_format.latest_version(store)
        if version is None:
            raise NotATableError(f"there is no table at {table.url}", table=table.url)
        return version

    def _enqueue(
        self,
        table: RegisteredTable,
        applied: TablePolicy,
        verb: str,
        trigger: str,
        version: int | None,
        now: float,
    ) -> int:
        held = self._tables.held_verbs(table.id, lakehand=__version__, policy=applied.digest)
        if verb in held:
            return 0
        request = job_request(
            self.config, table, applied.policy, verb=verb, trigger=trigger, version=version, now=now
        )
        is_new = self._jobs.enqueue(request).is_new
        reached(Step.JOB_ENQUEUED)
        return int(is_new)

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
