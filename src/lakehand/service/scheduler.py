"""The scheduler: finds tables, looks at them, and queues what is due. One process leads.

A look is one listing of the log; no table is opened here. What a table needs is decided by the job
itself, which runs `maintain` with the steps of its policy.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import NotATableError, describe_error
from lakehand.formats.optional import SupportsPolling
from lakehand.formats.registry import load_format
from lakehand.model.maintenance import MAINTENANCE_STEPS
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.service.discovery import discover
from lakehand.service.policies import TablePolicy, find_policy, storage_profile
from lakehand.service.store.job_claims import set_pools
from lakehand.service.store.records import JobRequest
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry

#: A table is looked at so soon after a change, then ever later.
_LOOK_SOON, _LOOK_STEP, _LOOK_LATE = 60.0, 30.0, 3600.0
#: Tables that are looked at in one tick, and at the same time.
_LOOKS_PER_TICK, _LOOKS_AT_ONCE = 500, 16
#: A worker that was silent for so many leases is lost.
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
        #: When scheduled verbs are due next, by table and verb.
        self._due_at: dict[tuple[int, str], float] = {}

    def tick(self) -> Tick:
        """Do all that is due now."""
        done = Tick()
        now = self._database.time()
        set_pools(self._database, {pool.name: pool.max_running for pool in self.config.pools})
        done.freed = len(self._jobs.free_dead())
        reached(Step.JOBS_FREED)
        lease = self.config.service.lease.total_seconds()
        self._workers.forget_lost(silent_seconds=_LEASES_SILENT * lease)
        self._discover(done, now)
        self._look_at(self._tables.to_look_at(limit=_LOOKS_PER_TICK), done, now)
        return done

    # -- discovery ------------------------------------------------------------------------------

    def _discover(self, done: Tick, now: float) -> None:
        for source in self.config.sources:
            # By amount: the clock may have gone back since.
            if abs(now - self._listed_at.get(source.name, 0.0)) < source.every.total_seconds():
                continue
            self._listed_at[source.name] = now
            found = discover(source, self.storage_options)
            done.errors += found.errors
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

    def storage_options(self, url: str) -> Mapping[str, str] | None:
        """Return the options of the storage section that a URL belongs to."""
        name = storage_profile(self.config, url)
        return None if name is None else self.config.storage[name].resolve()

    # -- looks ----------------------------------------------------------------------------------

    def policy_of(self, table: RegisteredTable) -> Policy:
        return find_policy(self.config.policies, table.url, table.name)

    def _look_at(self, tables: Sequence[RegisteredTable], done: Tick, now: float) -> None:
        """Look whether tables have new commits, and queue what is due."""
        if not tables:
            return
        nothing_due = []
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as threads:
            for table, version in zip(tables, threads.map(self._seen, tables), strict=True):
                done.looked_at += 1
                if isinstance(version, dict):
                    self._tables.failed_to_look(table.id, version, look_every=_later(table))
                    done.errors.append({"url": table.url, **version})
                elif (look := self._take_in(table, version, done, now)) is not None:
                    nothing_due.append(look)
        self._tables.looked_all(nothing_due)
        reached(Step.TABLE_LOOKED_AT)

    def _seen(self, table: RegisteredTable) -> int | dict[str, Any] | None:
        """Return the latest version of a table, or its error: the others are not affected."""
        try:
            return self._latest_version(table)
        except Exception as error:  # noqa: BLE001  whatever it is, it is of one table
            return describe_error(error)

    def _take_in(
        self, table: RegisteredTable, version: int | None, done: Tick, now: float
    ) -> dict[str, Any] | None:
        """Queue what a table needs; return what to note of a look after which nothing is due."""
        has_changed = version is not None and version != table.assessed_version
        known = version if version is not None else table.version
        commits = _commits_since(table, known)
        policy = self.policy_of(table)
        trigger = self._trigger(table, policy, commits, now) if policy.enabled else None
        look_every = _LOOK_SOON if has_changed else _later(table)
        if policy.enabled:
            done.queued += self._enqueue_scheduled(table, policy, now)
        seen: dict[str, Any] = {"look_every": look_every, "version": known, "policy": policy.name}
        if trigger is None:
            return {"table": table.id, "due_at": table.look_at, "commits_since": commits, **seen}
        done.queued += self._enqueue(table, policy, "maintain", trigger, known)
        since = {"commits_since": 0, "bytes_since": 0, "last_error": None, "error_count": 0}
        values = {**seen, **since, "assessed_at": now, "assessed_version": known}
        self._tables.looked(table.id, **values)
        reached(Step.TABLE_LOOKED_AT)
        return None

    def _latest_version(self, table: RegisteredTable) -> int | None:
        table_format = load_format(table.format or "delta")
        store = open_store(table.url, self.storage_options(table.url))
        if not isinstance(table_format, SupportsPolling):
            return table_format.open(store).snapshot().version
        version = table_format.latest_version(store, after=table.version)
        if version is None and table.version is None:
            raise NotATableError(f"there is no table at {table.url}", table=table.url)
        return version

    def _trigger(
        self, table: RegisteredTable, policy: Policy, commits: int, now: float
    ) -> str | None:
        """Return why a table is to be maintained now; None if it is not."""
        after = policy.check_after
        if table.assessed_at is None:
            return "found"
        if commits == 0:
            return None
        if commits >= after.commits:
            return "commits"
        if table.bytes_since >= after.bytes:
            return "bytes"
        waited = timedelta(seconds=now - table.assessed_at)
        return "time" if waited >= after.time else None

    def _enqueue(
        self,
        table: RegisteredTable,
        policy: Policy,
        verb: str,
        trigger: str,
        version: int | None,
    ) -> int:
        if verb in self._tables.held_verbs(table.id, lakehand=__version__):
            return 0
        options = {}
        if verb == "maintain":
            options["skip"] = sorted(set(MAINTENANCE_STEPS) - set(policy.steps))
        request = JobRequest(
            table_id=table.id,
            verb=verb,
            trigger=trigger,
            options=options,
            reasons=[f"version {version}"],
            pool=policy.pool,
            engine=self._engine_of(policy.pool),
        )
        is_new = self._jobs.enqueue(request).is_new
        reached(Step.JOB_ENQUEUED)
        return int(is_new)

    def _engine_of(self, name: str) -> str:
        return next(pool.engine for pool in self.config.pools if pool.name == name)

    def _enqueue_scheduled(self, table: RegisteredTable, policy: Policy, now: float) -> int:
        """Queue the verbs whose time has come since the last look."""
        queued = 0
        moment = datetime.fromtimestamp(now, UTC)
        for verb, schedule in policy.schedule.items():
            key = (table.id, verb)
            due = self._due_at.get(key)
            if due is not None and due <= now:
                queued += self._enqueue(table, policy, verb, "schedule", table.version)
            if due is None or due <= now:
                following = schedule.next_after(moment, self.config.service.time_zone)
                self._due_at[key] = float("inf") if following is None else following.timestamp()
        return queued

    def table_policy(self, table: RegisteredTable) -> TablePolicy:
        """Return the policy of a table with its overrides."""
        return TablePolicy(policy=self.policy_of(table), overrides=table.overrides)


def _later(table: RegisteredTable) -> float:
    """Return when to look again at a table that has not changed: ever later, up to an hour."""
    return min(_LOOK_LATE, max(_LOOK_SOON, table.look_every) + _LOOK_STEP)


def _commits_since(table: RegisteredTable, version: int | None) -> int:
    """Return how many commits have come since the table was assessed, as far as it is known."""
    if version is None or table.assessed_version is None:
        return table.commits_since
    return max(table.commits_since, version - table.assessed_version)
