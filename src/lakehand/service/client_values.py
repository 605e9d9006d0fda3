"""What `ServiceClient` returns, and checks that need no job store."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lakehand.errors import LakehandError, UnknownSettingError, ValidationError
from lakehand.service.job_specs import storage_options
from lakehand.service.job_states import LANE_OF
from lakehand.service.policies import TablePolicy, find_policy
from lakehand.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.job_states import WaitsFor
    from lakehand.service.store.job_waits import Wait
    from lakehand.service.store.records import Job
    from lakehand.service.store.table_registry import RegisteredTable
    from lakehand.settings import Setting, Settings

TableState = Literal["ok", "paused", "held", "unreadable", "gone"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableEntry:
    """A table that the service maintains."""

    table: RegisteredTable
    #: `ok`; `paused`; `held`: a verb failed in a way that no retry cures; `unreadable`; `gone`.
    state: TableState
    #: Name of the policy that the table has.
    policy: str
    #: Verbs that are held, each with its error.
    held: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON document."""
        own = {"state": self.state, "policy": self.policy, "held": dict(self.held)}
        return {**self.table.to_json(), **own}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEntry:
    """A job, and what it waits for."""

    job: Job
    #: All that a queued job waits for; the first is shown first.
    waits: tuple[Wait, ...] = ()

    @property
    def waits_for(self) -> WaitsFor | None:
        """What it waits for first; None if it is not queued."""
        return self.waits[0].reason if self.waits else None

    def to_json(self) -> dict[str, Any]:
        """Return the job as a JSON document."""
        waits = [wait.to_json() for wait in self.waits]
        return {**self.job.to_json(), "waits_for": self.waits_for, "waits": waits}


class JobsNow(NamedTuple):
    """Jobs of the service at one time."""

    #: The newest ones, whatever their state.
    newest: Sequence[JobEntry]
    running: Sequence[JobEntry]
    #: Queued ones, in the order in which they start as far as nothing keeps them.
    queued: Sequence[JobEntry]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDiscovery:
    """What one source has found."""

    #: Name of the source.
    source: str
    #: Tables that were found.
    found: int
    #: Those among them that were not known.
    new: int
    #: Known ones that were not found any more.
    gone: int
    #: Directories that could not be listed: no table is marked as gone then.
    errors: tuple[Mapping[str, Any], ...]
    #: URLs of what was found.
    urls: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the discovery as a JSON document."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingOrigin:
    """A setting of a table, and where its value came from."""

    name: str
    value: Any
    #: `table`, `table property X`, `policy NAME`, `environment X` or `default`.
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyOfTable:
    """The policy of a table, and every setting with the place that it came from."""

    url: str
    policy: Policy
    settings: tuple[SettingOrigin, ...]
    #: Why the properties of the table could not be read; None if they were.
    unread: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the policy as a JSON document."""
        found = {one.name: {"value": one.value, "source": one.source} for one in self.settings}
        policy = {
            "name": self.policy.name,
            "match": self.policy.match,
            "enabled": self.policy.enabled,
            "steps": self.policy.steps,
            "pool": self.policy.pool,
            "schedule": {verb: at.expression for verb, at in self.policy.schedule.items()},
        }
        return {"url": self.url, "policy": policy, "settings": found, "unread": self.unread}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyCheck:
    """A configuration that was checked."""

    #: The file; null if there is none.
    path: str | None
    #: How many registered tables each policy applies to; null without a job store.
    tables: Mapping[str, int] | None
    #: Names of the policies.
    policies: tuple[str, ...]
    #: Names of the sources.
    sources: tuple[str, ...]
    #: Names of the pools.
    pools: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON document."""
        return {name: getattr(self, name) for name in self.__slots__}


def check_config(config: ServiceConfig, tables: Mapping[str, int] | None = None) -> PolicyCheck:
    """Describe a configuration that is valid."""
    return PolicyCheck(
        path=None if config.path is None else str(config.path),
        tables=tables,
        policies=tuple(policy.name for policy in config.policies),
        sources=tuple(source.name for source in config.sources),
        pools=tuple(pool.name for pool in config.pools),
    )


def policy_of_table(
    config: ServiceConfig, url: str, name: str | None, overrides: Mapping[str, Any]
) -> PolicyOfTable:
    """Return the policy and the settings of a table, registered or not."""
    policy = find_policy(config.policies, url, name)
    snapshot, unread = read_snapshot(config, url)
    properties = {} if snapshot is None else snapshot.properties
    chosen = TablePolicy(policy=policy, overrides=overrides).settings(properties)
    return PolicyOfTable(url=url, policy=policy, settings=origins_of(chosen), unread=unread)


def read_snapshot(config: ServiceConfig, url: str) -> tuple[Snapshot | None, str | None]:
    """Return the latest snapshot of a table, or why it cannot be read."""
    from lakehand.table import open_table

    try:
        return open_table(url, storage_options=storage_options(config, url)).snapshot(), None
    except LakehandError as error:
        return None, error.message


def origins_of(settings: Settings) -> tuple[SettingOrigin, ...]:
    """Return every setting with the place that it came from."""
    return tuple(
        SettingOrigin(name=one, value=getattr(settings, one), source=settings.sources[one])
        for one in settings
    )


def check_options(verb: str, options: Mapping[str, Any]) -> None:
    """Refuse what the verb of a job does not take, before it is queued."""
    from lakehand.table import Table

    if verb not in LANE_OF:
        message = f"a job cannot run {verb!r}; it can run {', '.join(LANE_OF)}"
        raise ValidationError(message, field="verb", value=verb)
    parameters = inspect.signature(getattr(Table, verb)).parameters
    own = set(parameters) - {"self", "on_progress", "settings"}
    for name, value in options.items():
        if name not in own:
            setting = _setting_of(verb, name, own)
            setting.read(setting.in_its_unit(name, value), f"option {name}")


def _setting_of(verb: str, name: str, own: set[str]) -> Setting:
    try:
        return find_setting(name)
    except UnknownSettingError as error:
        near = difflib.get_close_matches(name, own, n=1)
        hint = f"did you mean {near[0]}?" if near else error.hint
        message = f"{verb} has no option {name!r}, and there is no such setting"
        raise ValidationError(message, field=name, value=name, hint=hint) from error
