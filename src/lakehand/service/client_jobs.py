"""The jobs of the service, as a client lists, asks for and controls them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.service.client_values import JobEntry, JobsNow, check_options
from lakehand.service.job_specs import pool_of, table_policy
from lakehand.service.job_states import ENDED, URGENT_RANK
from lakehand.service.store.records import JobRequest, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from lakehand.service.client import ServiceClient
    from lakehand.service.config import ServiceConfig
    from lakehand.service.job_states import JobState
    from lakehand.service.returns import JobReturn
    from lakehand.service.store.records import Job

#: Between two looks at a job that is watched.
_WATCH_SECONDS = 0.5


class ClientPart:
    """One group of methods of the client."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client
        self._stores = client._stores  # noqa: SLF001  a part of the client

    @property
    def _config(self) -> ServiceConfig:
        return self._client.config

    @property
    def _by(self) -> str:
        return self._client.by

    def _until(self, duration: timedelta | None) -> float | None:
        return None if duration is None else self._client.now() + duration.total_seconds()


class JobsPart(ClientPart):
    """The jobs of the service."""

    def list(
        self,
        *,
        states: Sequence[JobState] = (),
        table: str | None = None,
        verb: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[JobEntry]:
        """Return jobs, the newest first; `before` continues a listing below that number."""
        table_id = None if table is None else self._stores.tables.find(table).id
        jobs = self._stores.jobs.listed(
            states=states, table_id=table_id, verb=verb, before=before, limit=limit
        )
        return self._entries(jobs)

    def in_turn(self, *, limit: int = 100) -> Sequence[JobEntry]:
        """Return queued jobs in the order in which they start, as far as nothing keeps them."""
        return self._entries(self._stores.listings.jobs_in_turn(limit=limit))

    def now(self, *, newest: int, queued: int) -> JobsNow:
        """Return the newest jobs, those that run, and those that start next."""
        stores = self._stores
        parts = (
            stores.jobs.listed(limit=newest),
            stores.jobs.listed(states=("running",)),
            stores.listings.jobs_in_turn(limit=queued),
        )
        entries = {
            one.job.id: one for one in self._entries([job for part in parts for job in part])
        }
        return JobsNow(*([entries[job.id] for job in part] for part in parts))

    def _entries(self, jobs: Sequence[Job]) -> Sequence[JobEntry]:
        from lakehand.service.store.job_waits import find_waits

        silent_seconds = self._client.silent_seconds
        waits = find_waits(self._stores.database, jobs, silent_seconds=silent_seconds)
        return [JobEntry(job=job, waits=waits.get(job.id, ())) for job in jobs]

    def show(self, job: int) -> JobEntry:
        """Return a job by its number."""
        return self._entries([self._stores.jobs.get(job)])[0]

    def events(self, job: int) -> Sequence[Mapping[str, Any]]:
        """Return what happened to a job, oldest first."""
        return [
            {"at": format_time(one["at"]), **{key: one[key] for key in ("kind", "by", "details")}}
            for one in self._stores.events.of_job(job)
        ]

    def returns(self, table: str) -> Sequence[JobReturn]:
        """Return what the last rewrites of a table have cost and were worth, newest first."""
        from lakehand.service.returns import read_returns

        found = self._stores.tables.find(table)
        importance = table_policy(self._config, found).policy.importance
        return read_returns(
            self._stores.database, found.id, self._config.costs, importance=importance
        )

    def submit(
        self,
        table: str,
        verb: str = "maintain",
        *,
        urgent: bool = False,
        scope: str = "",
        **options: Any,
    ) -> JobEntry:
        """Ask for a job; where one of the kind is queued already, that one is returned.

        `options` are arguments of the verb, and settings. `urgent` lets it go before all others.
        Jobs of a verb with different `scope` may be queued at the same time.
        """
        verb = verb.replace("-", "_")
        found = self._stores.tables.find(table)
        if found.gone_at is not None:
            hint = f"lakehand tables add {found.url} registers it again"
            raise ValidationError(f"the table {table} is gone or was removed", hint=hint)
        check_options(verb, options)
        policy = table_policy(self._config, found).policy
        pool = pool_of(self._config, policy.pool)
        self._stores.service.ensure_pool(pool.name, pool.max_running)
        request = JobRequest(
            table_id=found.id,
            verb=verb,
            scope=scope,
            trigger="manual",
            options=options,
            reasons=["asked for by hand"],
            asked_by=self._by,
            urgency=0 if urgent else 1,
            head_start=URGENT_RANK if urgent else 0.0,
            pool=pool.name,
            engine=pool.engine,
        )
        return self.show(self._stores.jobs.enqueue(request).job_id)

    def watch(self, job: int, *, sleep: Callable[[float], None] = time.sleep) -> Iterator[JobEntry]:
        """Return the job whenever it has changed, until it has ended."""
        seen: JobEntry | None = None
        while True:
            entry = self.show(job)
            if entry != seen:
                yield entry
            if entry.job.state in ENDED:
                return
            seen = entry
            sleep(_WATCH_SECONDS)

    def cancel(self, job: int) -> JobEntry:
        """End a queued job; ask a running one to stop. What it has committed stays."""
        self._stores.jobs.cancel(job, by=self._by)
        return self.show(job)

    def pause(self, job: int) -> JobEntry:
        """Keep a job from starting; a running one commits what is proved and waits."""
        self._stores.jobs.pause(job, by=self._by)
        return self.show(job)

    def resume(self, job: int) -> JobEntry:
        """Let a paused job start again."""
        self._stores.jobs.resume(job, by=self._by)
        return self.show(job)

    def retry(self, job: int) -> JobEntry:
        """Queue the work of an ended job again, or let a waiting one start at once."""
        queued = self._stores.jobs.retry(job, by=self._by)
        return self.show(queued.job_id)
