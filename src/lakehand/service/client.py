"""The service, from Python: the same words as the commands `lakehand tables`, `jobs`, ...

The client talks to the job store, not to a server: it works while no service runs, and what it asks
for is done when one does.
"""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lakehand._version import __version__
from lakehand.errors import ValidationError
from lakehand.service.client_jobs import ClientPart, JobsPart
from lakehand.service.client_stores import open_stores, stores_of
from lakehand.service.client_values import (
    PolicyCheck,
    PolicyOfTable,
    SourceDiscovery,
    TableEntry,
    check_config,
    policy_of_table,
)
from lakehand.service.config import DEFAULT_STORE, ServiceConfig, find_config, load_config
from lakehand.service.discovery import discover, register_found
from lakehand.service.job_specs import storage_options, table_policy
from lakehand.service.store.records import FoundTable
from lakehand.settings import find_setting
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    import pyarrow as pa

    from lakehand.service.client_values import TableState
    from lakehand.service.config import SourceSection
    from lakehand.service.job_states import AccessRole
    from lakehand.service.policy_simulation import Simulation
    from lakehand.service.returns import ReturnSummary
    from lakehand.service.store.budgets import Budget
    from lakehand.service.store.database import Database
    from lakehand.service.store.listings import Listings, TableFilter
    from lakehand.service.store.service_state import ServiceStatus
    from lakehand.service.store.table_registry import RegisteredTable
    from lakehand.service.store.token_registry import AccessToken
    from lakehand.service.store.worker_registry import Worker
    from lakehand.service.table_explanation import Explanation

#: A worker that was silent for this many leases is lost.
_LEASES_SILENT = 3
#: Rows of one query.
_PAGE = 1000


class ServiceClient:
    """The service of a configuration file or of a job store.

    Without arguments: the file that `LAKEHAND_CONFIG` names, else `lakehand.toml` in the current
    directory. `store` is the URL of a job store, used instead of the file's. A store that does not
    exist is an error unless `create` is set. `by` is recorded with what the client does; default:
    the user of the process. `database` is a job store that is open already, and stays open.

    >>> client = ServiceClient(store="sqlite://", create=True)
    >>> client.tables.list()
    []
    >>> client.close()
    """

    def __init__(
        self,
        config: str | Path | ServiceConfig | None = None,
        *,
        store: str | None = None,
        create: bool = False,
        by: str | None = None,
        database: Database | None = None,
    ) -> None:
        self.config = find_client_config(config, store)
        self.by = by or _user()
        # One that is open already belongs to the caller, who closes it.
        self._owns_store = database is None
        self._stores = (
            open_stores(self.config, create=create) if database is None else stores_of(database)
        )
        #: The tables that the service maintains.
        self.tables = _Tables(self)
        #: Its jobs.
        self.jobs = JobsPart(self)
        #: The processes that run them.
        self.workers = _Workers(self)
        #: How tables are maintained.
        self.policies = _Policies(self)
        #: The service as a whole.
        self.service = _Service(self)
        #: Who may use its HTTP server.
        self.tokens = _Tokens(self)

    def budgets(self, day: str | None = None) -> list[Budget]:
        """Return what may be spent on a day (`2026-01-31`; default: today), and what was."""
        from lakehand.service.spending import budgets_today, day_of

        today, _ = day_of(self.config, self.now())
        known = self._stores.budgets.of_day(day or today)
        if day is not None and day != today:
            return known
        return budgets_today(known, today, self.config.budgets)

    def returns(self, *, days: int = 30) -> ReturnSummary:
        """Return what the jobs of the last days have cost and were worth, in total and by table."""
        from lakehand.service.policies import find_policy
        from lakehand.service.returns import read_return_summary

        return read_return_summary(
            self._stores.database,
            self.config.costs,
            importance_of=lambda url, name: find_policy(self.config.policies, url, name).importance,
            days=days,
        )

    def system_table(self, name: str, *, max_rows: int = 1_000_000) -> pa.Table:
        """Return the rows of a system table of the job store, such as `jobs`, as Arrow."""
        from lakehand.service.store.system_tables import read_system_table

        return read_system_table(self._stores.database, name, max_rows=max_rows)

    def create_views(self, *, grant_to: str | None = None) -> tuple[str, ...]:
        """Create the views of the system tables on PostgreSQL, readable by a role."""
        from lakehand.service.store.system_tables import create_views

        return create_views(self._stores.database, grant_to=grant_to)

    @property
    def silent_seconds(self) -> float:
        """A worker that is silent for this many seconds is lost."""
        return _LEASES_SILENT * self.config.service.lease.total_seconds()

    @property
    def listings(self) -> Listings:
        """Lists of tables, measurements, attempts and events, a page at a time."""
        return self._stores.listings

    def now(self) -> float:
        """Return the time of the job store, in seconds since 1970."""
        return self._stores.database.time()

    def close(self) -> None:
        """Close the connections to the job store, unless it was given."""
        if self._owns_store:
            self._stores.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Tables(ClientPart):
    """The tables that the service maintains."""

    def list(
        self, *, source: str | None = None, gone: bool = False, limit: int | None = None
    ) -> list[TableEntry]:
        """Return tables in the order in which they were registered; `gone`: those as well."""
        found: list[RegisteredTable] = []
        while limit is None or len(found) < limit:
            page = _PAGE if limit is None else min(_PAGE, limit - len(found))
            after = found[-1].id if found else 0
            rows = self._stores.tables.listed(source=source, is_gone=gone, after=after, limit=page)
            found += rows
            if len(rows) < page:
                break
        held, now = self._stores.tables.with_holds(), self._client.now()
        return [self._entry(table, held, now) for table in found]

    def page(
        self, wanted: TableFilter, *, limit: int, after: str | None = None
    ) -> tuple[Sequence[TableEntry], str | None]:
        """Return some of the tables that a filter wants, and where the next ones begin."""
        found, following = self._stores.listings.tables(wanted, limit=limit, after=after)
        held, now = self._stores.tables.with_holds(), self._client.now()
        return [self._entry(table, held, now) for table in found], following

    def count(self) -> int:
        """Return how many tables the service maintains."""
        return self._stores.tables.count()

    def show(self, table: str) -> TableEntry:
        """Return a table by its name, URL, path or id."""
        found = self._stores.tables.find(table)
        return self._entry(found, self._stores.tables.with_holds(), self._client.now())

    def _entry(self, table: RegisteredTable, with_holds: set[int], now: float) -> TableEntry:
        policy = table_policy(self._config, table)
        held: Mapping[str, Mapping[str, Any]] = {}
        if table.id in with_holds:
            held = self._stores.tables.held_verbs(
                table.id, lakehand=__version__, policy=policy.digest
            )
        state: TableState = "ok"
        if table.gone_at is not None:
            state = "gone"
        elif table.is_paused(now):
            state = "paused"
        elif table.last_error is not None:
            state = "unreadable"
        elif held:
            state = "held"
        return TableEntry(table=table, state=state, policy=policy.policy.name, held=held)

    def explain(self, table: str) -> Explanation:
        """Say why a table is maintained or not, and what its jobs wait for; its log is read."""
        from lakehand.service.spending import budgets_of
        from lakehand.service.table_explanation import explain_table

        entry = self.show(table)
        number = str(entry.table.id)
        pause = self._stores.service.pause_now()
        return explain_table(
            self._config,
            entry,
            now=self._client.now(),
            jobs=self._client.jobs.list(states=("queued", "running"), table=number),
            budgets=[
                budget
                for budget in self._client.budgets()
                if budget.scope in {one.name for one in budgets_of(self._config, entry.table)}
            ],
            returns=self._client.jobs.returns(number),
            service_paused_by=None if pause is None else pause.paused_by,
        )

    def add(self, url: str, *, name: str | None = None) -> tuple[TableEntry, bool]:
        """Register the table at a path or URL; return it, and whether it is new."""
        from lakehand.formats.registry import detect_format
        from lakehand.storage import open_store

        address = path_to_url(url)
        store = open_store(address, storage_options(self._config, address))
        chosen = name or address.rsplit("/", 1)[-1].removesuffix(".lance")
        found = FoundTable(url=address, format=detect_format(store).name, name=chosen)
        table, is_new = self._stores.tables.add(found, by=self._by)
        return self.show(str(table.id)), is_new

    def remove(self, table: str) -> TableEntry:
        """Stop maintaining a table. Its data, and the history of its jobs, stay."""
        found = self._stores.tables.find(table)
        self._stores.tables.remove(found.id, by=self._by)
        return self.show(str(found.id))

    def pause(
        self, table: str, *, duration: timedelta | None = None, why: str | None = None
    ) -> TableEntry:
        """Start no jobs of a table for some time, or until it is resumed. Running jobs continue."""
        found = self._stores.tables.find(table)
        until = self._until(duration)
        self._stores.tables.pause(found.id, by=self._by, why=why, until=until)
        return self.show(str(found.id))

    def resume(self, table: str) -> TableEntry:
        """Let jobs of a table start again, of held verbs as well."""
        found = self._stores.tables.find(table)
        self._stores.tables.resume(found.id, by=self._by)
        return self.show(str(found.id))

    def set(self, table: str, **settings: Any) -> TableEntry:
        """Override settings for a table, above its properties and its policy."""
        found = self._stores.tables.find(table)
        given = {}
        for spelling, value in settings.items():
            setting = find_setting(spelling)
            in_unit = setting.in_its_unit(spelling, value)
            setting.read(in_unit, f"table {table}")
            given[setting.name] = in_unit
        self._stores.tables.change_overrides(found.id, given=given, by=self._by)
        return self.show(str(found.id))

    def reset(self, table: str, *settings: str) -> TableEntry:
        """Remove settings that `set` gave to a table; without names: all of them."""
        found = self._stores.tables.find(table)
        removed = {find_setting(name).name for name in settings} or None
        self._stores.tables.change_overrides(found.id, given={}, removed=removed, by=self._by)
        return self.show(str(found.id))

    def discover(
        self, *, sources: Sequence[str] = (), dry_run: bool = False
    ) -> Sequence[SourceDiscovery]:
        """List the sources of the configuration file now, and register what they hold."""
        return [self._discover(one, dry_run=dry_run) for one in self._sources(sources)]

    def _sources(self, names: Sequence[str]) -> Sequence[SourceSection]:
        known = {source.name: source for source in self._config.sources}
        if not known:
            message = "the configuration has no [[source]], so no tables can be found"
            hint = "lakehand tables add URL registers one table"
            raise ValidationError(message, field="source", hint=hint)
        for name in names:
            if name not in known:
                hint = f"the sources are {', '.join(known)}"
                raise ValidationError(f"there is no source {name!r}", field="source", hint=hint)
        return [known[name] for name in (names or known)]

    def _discover(self, source: SourceSection, *, dry_run: bool) -> SourceDiscovery:
        found = discover(source, lambda url: storage_options(self._config, url))
        if dry_run:
            known = {entry.table.url for entry in self.list()}
            new, gone = sum(one.url not in known for one in found.tables), 0
        else:
            new, ids = register_found(self._stores.tables, found, source=source.name)
            gone = len(ids)
        return SourceDiscovery(
            source=source.name,
            found=len(found.tables),
            new=new,
            gone=gone,
            errors=tuple(found.errors),
            urls=tuple(table.url for table in found.tables),
        )


class _Workers(ClientPart):
    """The processes that run jobs."""

    def list(self) -> list[Worker]:
        """Return the workers that are alive, the oldest first."""
        return self._stores.workers.alive(within_seconds=self._client.silent_seconds)

    def drain(self, worker: str) -> None:
        """Let a worker commit what is proved, and end. Its jobs are queued again."""
        self._stores.workers.ask(worker, "drain", by=self._by)

    def stop(self, worker: str) -> None:
        """End a worker now. Its jobs are queued again; what they have committed stays."""
        self._stores.workers.ask(worker, "stop", by=self._by)


class _Policies(ClientPart):
    """How tables are maintained."""

    def check(self) -> PolicyCheck:
        """Check the configuration, and count the tables of each policy."""
        counts = dict.fromkeys((policy.name for policy in self._config.policies), 0)
        for entry in self._client.tables.list():
            counts[entry.policy] += 1
        return check_config(self._config, counts)

    def simulate(self, config: str | Path | ServiceConfig) -> Simulation:
        """Say what another configuration would do with the registered tables, and change nothing.

        Their logs are read as far as the job store has no summary of them.
        """
        from lakehand.service.policy_simulation import simulate_policies
        from lakehand.service.store.summary_store import SummaryStore

        other = config if isinstance(config, ServiceConfig) else load_config(config)
        tables = (entry.table for entry in self._client.tables.list())
        summaries = SummaryStore(self._stores.database)
        return simulate_policies(other, tables, summaries, now=self._client.now())

    def show(self, table: str) -> PolicyOfTable:
        """Return the policy of a table, and every setting with the place that it came from."""
        found = self._stores.tables.find(table)
        return policy_of_table(self._config, found.url, found.name, found.overrides)


class _Service(ClientPart):
    """The service as a whole."""

    def status(self) -> ServiceStatus:
        """Return how the service is doing."""
        tables = self._client.tables
        some = [tables.show(str(table_id)) for table_id in self._stores.tables.with_holds()]
        held = sum(bool(entry.held) and entry.state != "gone" for entry in some)
        return self._stores.service.status(tuple(self._client.workers.list()), held=held)

    def pause(self, *, duration: timedelta | None = None, why: str | None = None) -> None:
        """Start no jobs of any table for a while, or until resumed. Running jobs continue."""
        self._stores.service.pause(by=self._by, why=why, until=self._until(duration))

    def resume(self) -> bool:
        """Let jobs start again; return whether the service was paused."""
        return self._stores.service.resume(by=self._by)

    def drain(self) -> list[Worker]:
        """Ask all workers to commit what is proved and end; return them."""
        workers = self._client.workers.list()
        for worker in workers:
            self._stores.workers.ask(worker.id, "drain", by=self._by)
        return workers


class _Tokens(ClientPart):
    """Tokens of the HTTP server."""

    def create(
        self, name: str, role: AccessRole = "viewer", *, duration: timedelta | None = None
    ) -> tuple[AccessToken, str]:
        """Create a token; return it, and the secret itself, which is not stored."""
        expires_at = self._until(duration)
        return self._stores.tokens.create(name, role, by=self._by, expires_at=expires_at)

    def list(self) -> list[AccessToken]:
        """Return all tokens, revoked ones as well, the oldest first."""
        return self._stores.tokens.listed()

    def revoke(self, name: str) -> AccessToken:
        """Make a token invalid at once."""
        return self._stores.tokens.revoke(name, by=self._by)


#: The attributes of a client, by name.
PARTS: Mapping[str, type[ClientPart]] = {
    "tables": _Tables,
    "jobs": JobsPart,
    "workers": _Workers,
    "policies": _Policies,
    "service": _Service,
    "tokens": _Tokens,
}


def find_client_config(
    config: str | Path | ServiceConfig | None, store: str | None
) -> ServiceConfig:
    """Return the configuration of a client; `store` stands above its job store."""
    if not isinstance(config, ServiceConfig):
        # `lakehand serve DIRECTORY` needs no file, and has its store here.
        is_known = store is not None or Path(DEFAULT_STORE).is_file()
        path = find_config(config, is_required=not is_known)
        config = ServiceConfig() if path is None else load_config(path)
    if store is None:
        return config
    return replace(config, service=replace(config.service, store=store))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
