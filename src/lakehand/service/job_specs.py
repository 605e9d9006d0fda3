"""What the process of a job is told: settings of the table's policy, and how to reach its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.service.job_main import JobSpec
from lakehand.service.policies import TablePolicy, find_policy, storage_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.config import PoolSection, ServiceConfig
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.records import Job
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry


class JobSpecs:
    """Makes the specs of jobs from the configuration, as it is when each job starts."""

    def __init__(self, config: ServiceConfig, jobs: JobQueue, tables: TableRegistry) -> None:
        #: Replaced when the file is read again.
        self.config = config
        self._jobs = jobs
        self._tables = tables

    def of(self, job: Job) -> JobSpec:
        """Return the spec of a job; ConfigError if a secret of its storage cannot be read."""
        table = self._tables.get(job.table_id)
        policy = table_policy(self.config, table)
        overrides = {**table.overrides, **_engine_settings(pool_of(self.config, job.pool))}
        return JobSpec(
            url=table.url,
            verb=job.verb,
            options=job.options,
            settings=overrides,
            policy_settings=policy.policy.settings,
            policy_digest=policy.digest,
            storage_options=storage_options(self.config, table.url) or {},
            known_dead=tuple(sorted(self._jobs.dead_runs(table.id))),
            labels={"job": str(job.id), "attempt": str(job.fence)},
            check_again_after=policy.settings().quiet_period.total_seconds(),
        )


def table_policy(config: ServiceConfig, table: RegisteredTable) -> TablePolicy:
    """Return the policy of a table with its overrides."""
    policy = find_policy(config.policies, table.url, table.name)
    return TablePolicy(policy=policy, overrides=table.overrides)


def storage_options(config: ServiceConfig, url: str) -> Mapping[str, str] | None:
    """Return the options of the storage section that a URL belongs to, secrets included."""
    name = storage_profile(config, url)
    return None if name is None else config.storage[name].resolve()


def pool_of(config: ServiceConfig, name: str) -> PoolSection:
    """Return a pool by its name; the first one if it is no longer configured."""
    return next((pool for pool in config.pools if pool.name == name), config.pools[0])


def _engine_settings(pool: PoolSection) -> dict[str, Any]:
    """Return where the tasks of the pool's jobs run."""
    chosen = {"engine": pool.engine, "master": pool.master, "remote": pool.remote}
    return {name: value for name, value in chosen.items() if value is not None}
