"""SQL with a Spark session: what is not lakehand's goes to Spark, with system tables in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakehand.engine.runner_contract import require_pyspark
from lakehand.errors import SqlError
from lakehand.sql.grammar import is_known, parse_statement
from lakehand.sql.lexer import Lexer
from lakehand.sql.sql_session import SqlSession
from lakehand.sql.statements import RunVerb, TableName
from lakehand.sql.system_rows import (
    STORED,
    SYSTEM_TABLES,
    TABLE_FUNCTIONS,
    function_rows,
    system_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakehand.observe import OnProgress
    from lakehand.service.client import ServiceClient
    from lakehand.sql.lexer import Token

_SCHEMA = "SYSTEM"
_VIEW = "lakehand_system_"
_MAX_ROWS = 1_000_000


def run_sql(
    statement: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    spark: Any = None,
    service: ServiceClient | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> Any:
    """Run one SQL statement and return an `SqlResult`.

    `parameters` are the values of `?` (a list) or of `:name` (a dictionary); they are never parsed
    as SQL. With a `service`, statements that change a table become jobs, and this waits for them
    unless they say ASYNC; without one they run here, like the methods of `Table`. With a `spark`
    session, tasks run on it, tables may be named by its catalog, and SELECT and statements that are
    not lakehand's are passed to `spark.sql`, whose DataFrame is returned; `system.jobs` and other
    system tables may be joined there. `storage_options` are credentials and endpoints.
    """
    session = SqlSession(
        client=service,
        spark=spark,
        storage_options=storage_options or {},
        on_progress=on_progress,
    )
    if spark is None or (is_known(statement) and not _is_query(statement)):
        return session.run(statement, parameters)
    return spark.sql(_with_views(session, statement), args=parameters)


def _is_query(statement: str) -> bool:
    return Lexer(statement).peek().is_word("SELECT", "WITH")


def _with_views(session: SqlSession, statement: str) -> str:
    """Return a query with temporary views instead of the system tables that it names."""
    parts, begin = list[str](), 0
    for start, end, name, argument in _system_tables(statement):
        view = f"{_VIEW}{name}"
        if argument is not None:
            rows = function_rows(
                name, session.open(TableName(text=argument, is_path="/" in argument))
            )
            view += f"_{len(parts)}"
        else:
            client = session.client if name not in STORED else session.required_client(name)
            rows = system_rows(name, client, max_rows=_MAX_ROWS)
        session.spark.createDataFrame(rows).createOrReplaceTempView(view)
        parts += [statement[begin:start], view]
        begin = end
    return "".join([*parts, statement[begin:]])


def _system_tables(statement: str) -> Iterator[tuple[int, int, str, str | None]]:
    """Yield where system tables are in a statement: begin, end, name, and table of a function."""
    tokens = _tokens(statement)
    for place, token in enumerate(tokens):
        texts = [one.text for one in tokens[place : place + 6]]
        if not token.is_word(_SCHEMA) or texts[1:2] != ["."] or len(texts) < 3:  # noqa: PLR2004
            continue
        name = texts[2].lower()
        if place and tokens[place - 1].is_symbol("."):
            continue  # `catalog.system.jobs`
        is_call = texts[3:4] == ["("]
        if name in SYSTEM_TABLES and not is_call:
            yield token.start, tokens[place + 2].end, name, None
        elif name in TABLE_FUNCTIONS and is_call:
            argument = tokens[place + 4]
            if argument.kind != "string" or texts[5:6] != [")"]:
                raise SqlError(f"the argument of system.{name} is a table in quotes")
            yield token.start, tokens[place + 5].end, name, str(argument.value)


def _tokens(statement: str) -> list[Token]:
    lexer, found = Lexer(statement), list["Token"]()
    while (token := lexer.peek()).kind != "end":
        found.append(token)
        lexer.at = token.end
    return found


@dataclass(frozen=True, slots=True)
class _ServicePlace:
    """How processes of Spark reach the service. The store's URL may have a password."""

    config: str | None
    store: str | None = field(repr=False)

    def open(self) -> ServiceClient:
        from lakehand.service.client import ServiceClient

        return ServiceClient(self.config, store=self.store, by="spark")

    def read(self, name: str) -> pa.Table:
        with self.open() as client:
            return system_rows(name, client, max_rows=_MAX_ROWS)

    def submit(self, table: str, statement: str) -> tuple[int, str]:
        with self.open() as client:
            return submit(client, table, statement)


def submit(client: ServiceClient, table: str, statement: str) -> tuple[int, str]:
    """Queue a statement for a table, and return the number and the state of the job.

    `statement` is a word, such as OPTIMIZE, or has `?` instead of the table.
    """
    text = statement if "?" in statement else f"{statement} ?"
    parsed = parse_statement(text, [table])
    if not isinstance(parsed, RunVerb):
        raise SqlError(f"{statement!r} cannot run as a job")
    result = SqlSession(client=client).execute(replace(parsed, is_async=True))
    assert result.job is not None  # noqa: S101  ASYNC returns one
    return int(result.job["id"]), str(result.job["state"])


def register(
    spark: Any, service: ServiceClient | None = None, *, config: str | None = None
) -> None:
    """Register lakehand with a Spark session, which may be one of Spark Connect.

    Adds the data sources `lakehand` (tables) and `lakehand_system` (system tables: `CREATE
    TEMPORARY VIEW jobs USING lakehand_system OPTIONS (table 'jobs')`), and the table function
    `lakehand_submit(table, statement)`, which queues a job of the service. The service is that of
    `service`, of the file `config`, or the one that the processes of Spark find as the commands do:
    they must reach its configuration file and its job store.
    """
    require_pyspark()
    from lakehand.spark.source import LakehandSource
    from lakehand.spark.system_source import register_source, register_submit

    place = _ServicePlace(config, None)
    if service is not None:
        path = service.config.path
        place = _ServicePlace(
            config=None if path is None else str(path), store=service.config.service.store
        )
    spark.dataSource.register(LakehandSource)
    register_source(spark, place.read, SYSTEM_TABLES)
    register_submit(spark, place.submit)
