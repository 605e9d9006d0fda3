"""The scheduler: finds tables, looks at them, and queues what is due. One process leads.

A look is one listing of the log; no table is opened here. What a table needs is decided by the job
itself, which runs `maintain` with the steps of its policy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import LakehandError, NotATableError
from lakehand.formats.optional import SupportsPolling
from lakehand.formats.registry import load_format
from lakehand.observe.logs import get_logger, log_event
from lakehand.service.discovery import discover
from lakehand.service.policies import TablePolicy, find_policy, storage_options
from lakehand.service.triggers import (
    LOOK_SOON,
    changes_seen,
    find_trigger,
    job_request,
    state_after,
)
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry

#: A table that does not change is looked at ever later.
_LOOK_STEP, _LOOK_LATE = 30.0, 3600.0
#: Tables that are looked at in one tick.
_LOOKS_PER_TICK = 500
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
        done.freed = len(self._jobs.free_dead())
        lease = self.config.service.lease.total_seconds()
        self._workers.forget_lost(silent_seconds=_LEASES_SILENT * lease)
        self._discover(done, now)
        for table in self._tables.to_look_at(limit=_LOOKS_PER_TICK):
            self._look(table, done, now)
        return done

    # -- discovery ------------------------------------------------------------------------------

    def _discover(self, done: Tick, now: float) -> None:
        for source in self.config.sources:
            if now - self._listed_at.get(source.name, 0.0) < source.every.total_seconds():
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
            for error in found.errors:
                log_event(_logger, logging.WARNING, "discovery_failed", "%s", error["message"])

    def storage_options(self, url: str) -> Mapping[str, str] | None:
        """Return the options of the storage section that a URL belongs to."""
        return storage_options(self.config, url)

    # -- looks ----------------------------------------------------------------------------------

    def policy_of(self, table: RegisteredTable) -> Policy:
        return find_policy(self.config.policies, table.url, table.name)

    def _look(self, table: RegisteredTable, done: Tick, now: float) -> None:
        """Look whether a table has new commits, and queue what is due."""
        done.looked_at += 1
        try:
            version = self._latest_version(table)
        except LakehandError as error:
            self._tables.failed_to_look(table.id, error.to_json(), look_every=_later(table))
            done.errors.append({"url": table.url, **error.to_json()})
            return
        policy = self.policy_of(table)
        changes = changes_seen(table, version)
        trigger = find_trigger(table, policy, changes, now)
        values = state_after(changes, trigger, now)
        if trigger is not None:
            done.queued += self._enqueue(table, policy, "maintain", trigger, version)
        elif table.assessed_version is not None and version < table.assessed_version:
            # The table was replaced by a new one, or a notification named a version too high.
            values["assessed_version"] = version
        if policy.enabled:
            done.queued += self._enqueue_scheduled(table, policy, now)
        is_busy = version != table.version or (policy.enabled and changes.commits > 0)
        look_every = LOOK_SOON if is_busy else _later(table)
        self._tables.looked(
            table.id,
            look_every=look_every,
            version_before=table.version,
            policy=policy.name,
            last_error=None,
            error_count=0,
            **values,
        )

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
        policy: Policy,
        verb: str,
        trigger: str,
        version: int | None,
    ) -> int:
        if verb in self._tables.held_verbs(table.id, lakehand=__version__):
            return 0
        request = job_request(
            self.config, table, policy, verb=verb, trigger=trigger, version=version
        )
        return int(self._jobs.enqueue(request).is_new)

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
    return min(_LOOK_LATE, max(LOOK_SOON, table.look_every) + _LOOK_STEP)
