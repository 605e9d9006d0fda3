"""Runs statements: on tables here, as jobs of a service, and as queries on system tables."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand.errors import (
    CancelledError,
    JobNotFoundError,
    RequestRefusedError,
    ServiceError,
    SqlError,
    ValidationError,
    error_from_json,
)
from lakehand.service.job_states import LANE_OF
from lakehand.sql import statements as sql
from lakehand.sql.grammar import parse_statement
from lakehand.sql.results import SqlResult, table_of
from lakehand.sql.system_queries import QueryLimits, run_query, show_query
from lakehand.sql.system_rows import detail_row, history_rows
from lakehand.sql.verb_options import optimize_options, scope_of, split_storage, verb_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.observe import OnProgress
    from lakehand.service.client import ServiceClient
    from lakehand.service.client_values import JobEntry, TableEntry
    from lakehand.table import Table

#: Verbs that take no `on_progress`.
_SILENT = ("checkpoint", "restore")
#: Settings that say where tasks run.
_PLACES = {"engine", "master", "remote"}


@dataclass(frozen=True, kw_only=True)
class SqlSession:
    """What statements run with."""

    #: The service; None: statements run here.
    client: ServiceClient | None = None
    spark: Any = None
    storage_options: Mapping[str, str] = field(default_factory=dict)
    on_progress: OnProgress | None = None
    #: Whether only tables of the service may be named: a server reads no other path for anyone.
    is_restricted: bool = False
    #: Whether only statements that change nothing may run.
    is_read_only: bool = False
    #: How many seconds to wait for a job; None: until it ends.
    wait_seconds: float | None = None
    #: Called with a job whenever it has changed.
    on_job: Callable[[JobEntry], None] | None = None
    limits: QueryLimits = field(default_factory=QueryLimits)

    def run(
        self, text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> SqlResult:
        """Parse and run one statement."""
        return self.execute(parse_statement(text, parameters))

    def execute(self, statement: sql.Statement) -> SqlResult:  # noqa: C901, PLR0911  one case per statement
        """Run a statement that was parsed."""
        if self.is_read_only and not isinstance(statement, sql.READ_ONLY):
            message = "only SELECT, SHOW, DESCRIBE and EXPLAIN may run here: this changes something"
            raise RequestRefusedError(message, hint="use a token with the role operator")
        match statement:
            case sql.RunVerb():
                return self._run_verb(statement)
            case sql.Merge():
                return self._merge(statement)
            case sql.Describe():
                return self._describe(statement)
            case sql.Explain():
                return self._explain(statement.statement)
            case sql.SetProperties():
                return self._alter(statement.table, "set_properties", dict(statement.properties))
            case sql.UnsetProperties():
                table, names = self.open(statement.table), list(statement.names)
                report = table.unset_properties(names, if_exists=statement.if_exists)
                return _reported("alter table", report)
            case sql.ClusterBy():
                columns = list(statement.columns) or None
                return self._alter(statement.table, "cluster_by", columns)
            case sql.Show():
                query, parameters = show_query(statement)
                name = f"show {statement.what}"
                return run_query(self, query, parameters, self.limits, name=name)
            case sql.Query():
                return run_query(self, statement.text, statement.parameters, self.limits)
            case _:
                return self._change_service(statement)

    # -- verbs --------------------------------------------------------------------------------

    def _run_verb(self, statement: sql.RunVerb) -> SqlResult:
        is_job = self.client is not None and statement.verb in {*LANE_OF, "optimize"}
        given, storage = self._split_storage(statement, is_job=is_job)
        name = statement.keyword.lower()
        if is_job:
            return self._run_as_job(statement, given, name)
        if statement.is_async:
            hint = "leave ASYNC out, or name the service with --config or service="
            raise SqlError(f"ASYNC needs a service, and a job for {name}", hint=hint)
        table = self.open(statement.table, storage)
        verb, options = self._resolved(statement.verb, given, table)
        options = verb_options(verb, options)
        self._check_engine(options)
        if verb not in _SILENT:
            options["on_progress"] = self.on_progress
        return _reported(name, getattr(table, verb)(**options))

    def _merge(self, statement: sql.Merge) -> SqlResult:
        if self.client is not None:
            message = "the service has no job for MERGE INTO, which reads and writes rows itself"
            hint = "run it here: lakehand sql --local, run_sql without service=, or Table.merge"
            raise SqlError(message, hint=hint)
        given, storage = self._split_storage(statement)
        options = verb_options("merge", given)
        merge = self.open(statement.table, storage).merge(
            self.open(statement.source, storage),
            on=statement.on,
            target_alias=statement.target,
            source_alias=statement.source_alias,
            on_progress=self.on_progress,
            **options,
        )
        for clause in statement.clauses:
            merge = merge.with_clause(clause)
        return _reported("merge", merge.execute())

    def _split_storage(
        self, statement: sql.RunVerb | sql.Merge, *, is_job: bool = False
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the options of a verb, and those of its storage.

        A server sends no request to an endpoint that a statement names: it has its credentials.
        """
        given, storage = split_storage(statement.options)
        if storage and (is_job or self.is_restricted):
            message = "the storage options are those of the service's configuration"
            raise SqlError(message, hint="add a [storage] section, or leave storage.* out")
        return given, storage

    def _check_engine(self, options: Mapping[str, Any]) -> None:
        """Refuse another place for the tasks of a statement that a server runs itself."""
        places = sorted(options.keys() & _PLACES)
        if places and self.is_restricted:
            raise SqlError(f"this statement runs in the server: leave {places[0]} out")

    def _resolved(
        self, verb: str, options: Mapping[str, Any], table: Table
    ) -> tuple[str, dict[str, Any]]:
        if verb != "optimize":
            return verb, dict(options)
        return optimize_options(options, is_clustered=bool(table.clustering_columns()))

    def _run_as_job(self, statement: sql.RunVerb, given: Mapping[str, Any], name: str) -> SqlResult:
        client = self.required_client(name)
        entry = self._registered(statement.table)
        verb, options = statement.verb, dict(given)
        if verb == "optimize":
            verb, options = self._resolved(verb, options, self._open_registered(entry, {}))
        options = verb_options(verb, options)
        if verb in {"compact", "cluster"}:
            options.setdefault("automatic", False)
        job = client.jobs.submit(
            str(entry.table.id), verb, urgent=True, scope=scope_of(options), **options
        )
        if not statement.is_async:
            job = self._wait(client, job)
        return SqlResult(statement=name, report=job.job.report, job=job.to_json(), value=job)

    def _wait(self, client: ServiceClient, job: JobEntry) -> JobEntry:
        """Wait until a job has ended, or the time is over; raise the error that it ended with."""
        until = math.inf if self.wait_seconds is None else time.monotonic() + self.wait_seconds

        def sleep(seconds: float) -> None:
            # Here and not for each change: a job that waits for a worker does not change.
            left = until - time.monotonic()
            if left <= 0:
                raise _WaitOverError
            time.sleep(min(seconds, left))

        with suppress(_WaitOverError):
            for seen in client.jobs.watch(job.job.id, sleep=sleep):
                job = seen
                if self.on_job is not None:
                    self.on_job(job)
        if job.job.state == "failed":
            raise error_from_json(
                {"code": "", "message": "the job failed", **(job.job.error or {})}
            )
        if job.job.state == "cancelled":
            raise CancelledError(f"job {job.job.id} was cancelled: {job.job.outcome}")
        return job

    def _explain(self, statement: sql.RunVerb) -> SqlResult:
        given, storage = self._split_storage(statement)
        name = f"explain {statement.keyword.lower()}"
        if statement.verb == "maintain" and not given and self._is_registered(statement.table):
            entry = self._registered(statement.table)
            explanation = self.required_client(name).tables.explain(str(entry.table.id))
            return _reported(name, explanation)
        table = self.open(statement.table, storage)
        verb, options = self._resolved(statement.verb, given, table)
        options = verb_options(verb, options)
        self._check_engine(options)
        options.pop("dry_run", None)
        if verb in {"compact", "cluster"}:
            by = options.pop("sort_by", None) or options.pop("by", ())
            report = table.plan(operation=verb, by=by, **options)  # type: ignore[arg-type]
        else:
            report = getattr(table, verb)(dry_run=True, **options)
        return _reported(name, report)

    # -- tables -------------------------------------------------------------------------------

    def open(self, name: sql.TableName, storage: Mapping[str, str] | None = None) -> Table:
        """Open a table that a statement names."""
        if self._is_registered(name):
            table = self._open_registered(self._registered(name), storage or {})
        else:
            table = self._open_path(name, storage or {})
        if name.format is not None and table.format != name.format:
            message = f"{table.url} is a {table.format} table, and not a {name.format} table"
            raise ValidationError(message, field="table", value=name.text)
        return table

    def _is_registered(self, name: sql.TableName) -> bool:
        """Whether a name is one of the service's: a path need not be."""
        return self.client is not None and (self.is_restricted or not name.is_path)

    def _open_path(self, name: sql.TableName, storage: Mapping[str, str]) -> Table:
        from lakehand.table import open_table

        location = name.text
        if not name.is_path and self.spark is not None:
            from lakehand.spark.system_source import find_location

            location = find_location(self.spark, name.text) or location
        options = {**self.storage_options, **storage} or None
        return open_table(location, storage_options=options, spark=self.spark)

    def _open_registered(self, entry: TableEntry, storage: Mapping[str, str]) -> Table:
        from lakehand.service.job_specs import storage_options, table_policy
        from lakehand.table import open_with

        config = self.required_client("this").config
        url = entry.table.url
        options = {**(storage_options(config, url) or {}), **self.storage_options, **storage}
        settings = table_policy(config, entry.table).settings()
        return open_with(settings, url, storage_options=options or None, spark=self.spark)

    def _registered(self, name: sql.TableName) -> TableEntry:
        client = self.required_client("this")
        try:
            return client.tables.show(name.text)
        except JobNotFoundError as error:
            hint = error.hint or ""
            if not self.is_restricted:
                hint = f"{hint}; --local (in Python: no service=) runs the statement here"
            raise JobNotFoundError(error.message, hint=hint.lstrip("; ")) from error

    def required_client(self, what: str) -> ServiceClient:
        """Return the service; ServiceError if there is none."""
        if self.client is None:
            hint = "name it with --config or --store; in Python: run_sql(..., service=client)"
            raise ServiceError(f"{what} needs a service, and none is configured", hint=hint)
        return self.client

    # -- metadata -----------------------------------------------------------------------------

    def _describe(self, statement: sql.Describe) -> SqlResult:
        table = self.open(statement.table)
        if statement.what == "history":
            rows = table_of(history_rows(table, statement.limit))
        else:
            rows = table_of([detail_row(table)])
        return SqlResult(statement=f"describe {statement.what}", rows=rows)

    def _alter(self, name: sql.TableName, method: str, value: Any) -> SqlResult:
        return _reported("alter table", getattr(self.open(name), method)(value))

    # -- the service --------------------------------------------------------------------------

    def _change_service(self, statement: sql.Statement) -> SqlResult:
        if isinstance(statement, sql.ChangeJob):
            client = self.required_client(f"{statement.action} job")
            job = getattr(client.jobs, statement.action)(statement.job)
            return SqlResult(statement=f"{statement.action} job", job=job.to_json(), value=job)
        client = self.required_client("this ALTER TABLE")
        assert isinstance(statement, sql.ChangeSettings | sql.PauseTable)  # noqa: S101  the rest
        table = str(self._registered(statement.table).table.id)
        if isinstance(statement, sql.PauseTable):
            entry = self._pause(client, table, statement)
        elif statement.removed is not None:
            entry = client.tables.reset(table, *statement.removed)
        else:
            entry = client.tables.set(table, **statement.settings)
        return _reported("alter table", entry)

    def _pause(self, client: ServiceClient, table: str, statement: sql.PauseTable) -> TableEntry:
        if not statement.is_paused:
            return client.tables.resume(table)
        duration = None
        if statement.until is not None:
            seconds = _moment(statement.until).timestamp() - client.now()
            if seconds <= 0:
                message = f"{statement.until} has passed"
                raise ValidationError(message, field="until", value=statement.until)
            duration = timedelta(seconds=seconds)
        return client.tables.pause(table, duration=duration)


class _WaitOverError(Exception):
    """The job has not ended in time."""


def _reported(name: str, value: Any) -> SqlResult:
    return SqlResult(statement=name, report=value.to_json(), value=value)


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time in ISO 8601"
        raise ValidationError(message, field="until", value=text) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
