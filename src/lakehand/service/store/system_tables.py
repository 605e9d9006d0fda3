"""The tables of the job store as users query them: `system.jobs` and others.

One definition each serves two readers: DuckDB, which gets the rows as Arrow, and PostgreSQL, where
`create_views` makes views of them for psql and BI tools.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    Integer,
    case,
    func,
    literal,
    select,
    text,
    union_all,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import JSON

from lakehand.errors import JobStoreError, ValidationError
from lakehand.service.scores import MEASURES
from lakehand.service.store.database_schema import (
    ATTEMPTS,
    BUDGETS,
    EVENTS,
    JOBS,
    MEASUREMENTS,
    TABLES,
    WORKERS,
)
from lakehand.service.store.records import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Column, CompoundSelect, Select

    from lakehand.service.store.database import Database

#: Schema of the views. Not `lakehand`: PostgreSQL looks into the schema with the name of the user
#: first, so that the service would read the views instead of the tables.
VIEW_SCHEMA = "lakehand_system"
#: The words of `compaction_status`, by the state of a job.
COMPACTION_STATUS = {
    "queued": "pending",
    "running": "running",
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
#: Jobs of these verbs are compactions.
_COMPACTIONS = ("compact", "cluster", "maintain")
_TIMES = {"at", "not_before"}


def _is_time(name: str) -> bool:
    return name.endswith(("_at", "_until")) or name in _TIMES


class _Columns:
    """Columns of a table, with times as numbers, or as a view of PostgreSQL has them."""

    def __init__(self, *, is_view: bool) -> None:
        self._is_view = is_view

    def of(self, table: Any, *left_out: str) -> list[Any]:
        return [self._shown(column) for column in table.c if column.name not in left_out]

    def _shown(self, column: Column[Any]) -> Any:
        if not _is_time(column.name):
            return column
        known: Any = case((column < FOREVER, column), else_=None)
        return (func.to_timestamp(known) if self._is_view else known).label(column.name)


def _with_table(columns: _Columns, table: Any, *more: Any) -> Select[Any]:
    named = [TABLES.c.name.label("table"), TABLES.c.url.label("table_url")]
    joined = table.outerjoin(TABLES, TABLES.c.id == table.c.table_id)
    return select(*named, *more, *columns.of(table)).select_from(joined)


def _compaction_jobs(columns: _Columns) -> Select[Any]:
    status = case(*((JOBS.c.state == one, word) for one, word in COMPACTION_STATUS.items()))
    found = _with_table(columns, JOBS, status.label("compaction_status"))
    return found.where(JOBS.c.verb.in_(_COMPACTIONS))


def _scores(columns: _Columns) -> CompoundSelect[Any]:
    """One row per table, step and measure, as the last assessment of the scheduler found them."""
    measured = ((step, name) for step, names in MEASURES.items() for name in names)
    return union_all(*(_measure(columns, step, name) for step, name in measured))


def _measure(columns: _Columns, step: str, name: str) -> Select[Any]:
    found = TABLES.c.summary["steps"][step]
    measure = found["measures"][name]
    ratio = measure["ratio"].as_float()
    wanted = ("version", "health_score", "assessed_at")
    left_out = [column.name for column in TABLES.c if column.name not in wanted]
    return select(
        TABLES.c.name.label("table"),
        TABLES.c.url.label("table_url"),
        TABLES.c.id.label("table_id"),
        literal(step).label("step"),
        literal(name).label("measure"),
        measure["value"].as_float().label("value"),
        measure["threshold"].as_float().label("threshold"),
        literal(MEASURES[step][name]).label("setting"),
        ratio.label("ratio"),
        (ratio >= 1).label("is_due"),
        found["score"].as_float().label("step_score"),
        found["benefit_seconds"].as_float().label("benefit_seconds"),
        found["core_seconds"].as_float().label("core_seconds"),
        found["reasons"].label("reasons"),
        *columns.of(TABLES, *left_out),
    ).where(TABLES.c.gone_at.is_(None), ratio.is_not(None))


#: Each system table of the job store, as a query.
_QUERIES: Mapping[str, Callable[[_Columns], Select[Any] | CompoundSelect[Any]]] = {
    "jobs": lambda columns: _with_table(columns, JOBS),
    "compaction_jobs": _compaction_jobs,
    "attempts": lambda columns: _with_table(columns, ATTEMPTS),
    "tables": lambda columns: select(*columns.of(TABLES)),
    "scores": _scores,
    "measurements": lambda columns: _with_table(columns, MEASUREMENTS),
    "budgets": lambda columns: select(*columns.of(BUDGETS)),
    "workers": lambda columns: select(*columns.of(WORKERS)),
    "events": lambda columns: _with_table(columns, EVENTS),
}
STORED_TABLES: tuple[str, ...] = tuple(_QUERIES)


def read_system_table(database: Database, name: str, *, max_rows: int) -> pa.Table:
    """Return the rows of a system table; JobStoreError if it has more than `max_rows`."""
    wanted = _QUERIES[name](_Columns(is_view=False))
    with database.reading() as connection:
        rows = connection.execute(wanted.limit(max_rows + 1)).all()
    if len(rows) > max_rows:
        hint = "on PostgreSQL, query the views of `lakehand service views` instead"
        raise JobStoreError(f"system.{name} has more than {max_rows:,} rows", hint=hint)
    columns = list(wanted.selected_columns)
    arrays = [_array(column, [row[place] for row in rows]) for place, column in enumerate(columns)]
    return pa.Table.from_arrays(arrays, [column.name for column in columns])


def _array(column: Any, values: list[Any]) -> pa.Array:
    if _is_time(column.name):
        moments = [None if at is None else datetime.fromtimestamp(at, UTC) for at in values]
        return pa.array(moments, pa.timestamp("us", "UTC"))
    if isinstance(column.type, JSON):
        documents = [None if value is None else json.dumps(value) for value in values]
        return pa.array(documents, pa.string())
    if isinstance(column.type, Float):
        return pa.array(values, pa.float64())
    if isinstance(column.type, Boolean):
        return pa.array(values, pa.bool_())
    is_number = isinstance(column.type, BigInteger | Integer)
    return pa.array(values, pa.int64() if is_number else pa.string())


def create_views(database: Database, *, grant_to: str | None = None) -> tuple[str, ...]:
    """Create or replace the views of a PostgreSQL store, readable by a role; return their names."""
    if database.is_sqlite:
        hint = "query the same tables with `lakehand sql`, in DuckDB"
        raise ValidationError("only a job store on PostgreSQL has views", hint=hint)
    with database.transaction() as connection:
        path = connection.execute(text("SELECT current_schemas(false)")).scalar_one()
        if VIEW_SCHEMA in path:
            message = f"the schema {VIEW_SCHEMA} is in the search path of the service's user"
            hint = "the views would hide the tables; take it out of the search path"
            raise JobStoreError(message, hint=hint)
        for statement in _view_statements(database, grant_to):
            connection.execute(text(statement))
    return tuple(f"{VIEW_SCHEMA}.{name}" for name in _QUERIES)


def _view_statements(database: Database, grant_to: str | None) -> Iterator[str]:
    quote = database.engine.dialect.identifier_preparer.quote_identifier
    yield f"CREATE SCHEMA IF NOT EXISTS {VIEW_SCHEMA}"
    for name, query in _QUERIES.items():
        compiled = query(_Columns(is_view=True)).compile(
            dialect=postgresql.dialect(),  # type: ignore[no-untyped-call]
            compile_kwargs={"literal_binds": True},
        )
        # A view whose columns have changed cannot be replaced.
        yield f"DROP VIEW IF EXISTS {VIEW_SCHEMA}.{name}"
        yield f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {compiled}".replace(":", "\\:")
    if grant_to is not None:
        yield f"GRANT USAGE ON SCHEMA {VIEW_SCHEMA} TO {quote(grant_to)}".replace(":", "\\:")
        names = ", ".join(f"{VIEW_SCHEMA}.{name}" for name in _QUERIES)
        yield f"GRANT SELECT ON {names} TO {quote(grant_to)}".replace(":", "\\:")
