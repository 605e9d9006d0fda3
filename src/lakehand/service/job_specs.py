"""What the process of a job is told: settings of the table's policy, and how to reach its store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakehand.errors import UnknownSettingError
from lakehand.model.quantities import parse_bytes
from lakehand.service.job_main import JobSpec
from lakehand.service.policies import TablePolicy, find_policy, storage_profile
from lakehand.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.config import Policy, PoolSection, ServiceConfig
    from lakehand.service.spending import Grant
    from lakehand.service.store.budgets import BudgetStore
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.records import Job
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry


class JobSpecs:
    """Makes the specs of jobs from the configuration, as it is when each job starts."""

    def __init__(
        self,
        config: ServiceConfig,
        jobs: JobQueue,
        tables: TableRegistry,
        budgets: BudgetStore | None = None,
    ) -> None:
        """Without `budgets` nothing is reserved."""
        #: Replaced when the file is read again.
        self.config = config
        self._jobs = jobs
        self._tables = tables
        self._budgets = budgets

    def of(self, job: Job) -> JobSpec:
        """Return the spec of a job, and reserve what it may spend.

        ConfigError if a secret of its storage cannot be read, NoBudgetLeftError if there is too
        little left of a budget.
        """
        table = self._tables.get(job.table_id)
        policy = table_policy(self.config, table)
        pool = pool_of(self.config, job.pool)
        rate = pool.rate_bytes_per_second
        overrides = {**table.overrides, **_engine_settings(pool)}
        grant = self._grant(job, table, policy.policy)
        own = _own_limit(policy.settings().max_bytes_per_run, job.options)
        max_bytes = grant.max_bytes
        is_slice = max_bytes is not None and (own is None or max_bytes < own)
        if is_slice:
            overrides["max_bytes_per_run"] = max_bytes
        return JobSpec(
            url=table.url,
            verb=job.verb,
            options=_without_limit(job.options) if is_slice else job.options,
            settings=overrides,
            policy_settings=policy.policy.settings,
            policy_digest=policy.digest,
            storage_options=storage_options(self.config, table.url) or {},
            known_dead=tuple(sorted(self._jobs.dead_runs(table.id))),
            labels={"job": str(job.id), "attempt": str(job.fence)},
            check_again_after=policy.settings().quiet_period.total_seconds(),
            is_slice=is_slice,
            short_for=grant.short_for,
            granted_bytes=grant.max_bytes,
            rate=None if rate is None else rate / pool.max_running,
            nice=pool.nice,
            ionice=pool.ionice,
            costs=asdict(self.config.costs),
        )

    def _grant(self, job: Job, table: RegisteredTable, policy: Policy) -> Grant:
        from lakehand.service.spending import SLICED_VERBS, Grant, reserve_for  # Needs SQLAlchemy.

        if self._budgets is None:
            max_bytes = policy.slice_bytes if job.verb in SLICED_VERBS else None
            return Grant(max_bytes=max_bytes)
        now = self._budgets.time()
        return reserve_for(self.config, self._budgets, job, table, policy, now)


def _own_limit(setting: int | None, options: Mapping[str, Any]) -> int | None:
    """Return the limit of bytes that a job or its policy has, apart from its slice."""
    given = [value for name, value in options.items() if _is_limit(name)]
    return parse_bytes(given[0]) if given and given[0] is not None else setting


def _without_limit(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if not _is_limit(name)}


def _is_limit(option: str) -> bool:
    try:
        return find_setting(option).name == "max_bytes_per_run"
    except UnknownSettingError:  # It is an argument of the verb.
        return False


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
