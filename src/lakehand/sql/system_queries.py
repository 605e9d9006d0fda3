"""SELECT over the system tables, in a DuckDB that can reach nothing else.

The query is parsed, so that it is one SELECT over `system.*` and nothing more. DuckDB gets the rows
of the tables that it names, has no access to files, network or extensions, and is stopped when its
time is over.
"""

from __future__ import annotations

import difflib
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakehand.errors import SqlError
from lakehand.sql.lexer import syntax_error
from lakehand.sql.parser import Parser
from lakehand.sql.results import SqlResult
from lakehand.sql.statements import TableName
from lakehand.sql.system_rows import (
    STORED,
    SYSTEM_TABLES,
    TABLE_FUNCTIONS,
    function_rows,
    system_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.sql.sql_session import SqlSession
    from lakehand.sql.statements import Show

_SCHEMA = "system"
#: Parsing takes time that grows with the length.
_MAX_CHARACTERS = 100_000
_MEMORY = "1GB"
_SHOWN_CHARACTERS = 500
#: SHOW leaves out what is no longer there; SELECT has it.
_ENDED_AT = {"tables": "gone_at", "workers": "stopped_at"}
#: How the parser shows a token in its errors.
_TOKEN = re.compile(r"<Token token_type: \S+, text: (.*?), line: .*?>", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLimits:
    """What a query may take."""

    seconds: float = 30.0
    #: Rows of a result; it says if there are more.
    rows: int = 10_000
    #: Rows of one system table; a query on more is refused.
    scanned_rows: int = 1_000_000


def run_query(
    session: SqlSession, text: str, parameters: Any, limits: QueryLimits, *, name: str = "select"
) -> SqlResult:
    """Run a SELECT over system tables."""
    tree = _parse(text)
    sources = _Sources(session, parameters, limits)
    tree = sources.resolve(tree)
    values = _duckdb_parameters(tree, parameters)
    rows = _run(tree.sql("duckdb"), values, sources.tables, limits)
    return SqlResult(
        statement=name, rows=rows.slice(0, limits.rows), truncated=rows.num_rows > limits.rows
    )


def show_query(statement: Show) -> tuple[str, Any]:
    """Return SHOW as a query on the system table of the same name."""
    order = {"jobs": "id DESC", "tables": "id", "workers": "started_at"}.get(statement.what)
    conditions = [f"({statement.where}\n)"] if statement.where else []
    if statement.like is not None:
        column = {"jobs": '"table"', "workers": "id", "budgets": "scope"}.get(
            statement.what, "name"
        )
        conditions.append(f"{column} LIKE ?")
    if statement.what in _ENDED_AT:
        conditions.append(f"{_ENDED_AT[statement.what]} IS NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    end = f" ORDER BY {order}" if order else ""
    end += "" if statement.limit is None else f" LIMIT {statement.limit}"
    query = f"SELECT * FROM {_SCHEMA}.{statement.what}{where}{end}"
    return query, None if statement.like is None else [statement.like]


def _parse(text: str) -> exp.Expr:
    if len(text) > _MAX_CHARACTERS:
        raise SqlError(f"a query has at most {_MAX_CHARACTERS:,} characters")
    try:
        trees = [tree for tree in sqlglot.parse(text, read="duckdb") if tree is not None]
    except ParseError as error:
        raise _located(error, text) from error
    except (SqlglotError, RecursionError, ValueError) as error:
        raise SqlError(f"cannot parse the query: {_short(error)}") from error
    if len(trees) != 1:
        raise SqlError("run one statement at a time")
    if not isinstance(trees[0], exp.Query):
        raise SqlError("only SELECT can be run on system tables")
    return trees[0]


def _located(error: ParseError, text: str) -> SqlError:
    """Return an error of the parser with the place in the query."""
    found = error.errors[0] if error.errors else {}
    message = str(found.get("description") or "cannot parse the query").rstrip(".")
    message = _TOKEN.sub(lambda match: repr(match[1]), message)
    lines = text.split("\n")
    line = min(int(found.get("line") or 1), len(lines))
    end = sum(len(one) + 1 for one in lines[: line - 1]) + int(found.get("col") or 1)
    return syntax_error(message, text, max(0, end - len(found.get("highlight") or " ")))


class _Sources:
    """The tables that a query names, and their rows."""

    def __init__(self, session: SqlSession, parameters: Any, limits: QueryLimits) -> None:
        self._session = session
        self._parameters = parameters
        self._limits = limits
        self.tables: dict[str, pa.Table] = {}

    def resolve(self, tree: exp.Expr) -> exp.Expr:
        """Read the rows of every table, and return the query on their names in DuckDB."""
        queries = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        for table in list(tree.find_all(exp.Table)):
            is_named = not table.db and isinstance(table.this, exp.Identifier)
            if not (is_named and table.name.lower() in queries):
                self._replace(table)
        for column in tree.find_all(exp.Column):
            # The name `system.jobs.state` has the schema that the query loses here.
            if column.args.get("db") is not None:
                column.set("db", None)
        return tree

    def _replace(self, table: exp.Table) -> None:
        function = table.this if isinstance(table.this, exp.Func) else None
        name = (function.name if function is not None else table.name).lower()
        if table.db.lower() != _SCHEMA or table.catalog:
            raise _unknown(table.sql("duckdb"), name)
        if function is None:
            self._add(name, lambda: self._stored(name))
            new = name
        else:
            arguments = [self._argument(one) for one in function.expressions]
            if name not in TABLE_FUNCTIONS or len(arguments) != 1:
                raise _unknown(f"{_SCHEMA}.{name}(...)", name)
            new = f"{name}_{len(self.tables)}"
            opened = self._session.open(_table_name(arguments[0]))
            self._add(new, lambda: function_rows(name, opened))
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.set("this", exp.to_identifier(new, quoted=True))
        table.set("db", None)

    def _add(self, name: str, read: Callable[[], pa.Table]) -> None:
        if name not in self.tables:
            self.tables[name] = read()

    def _stored(self, name: str) -> pa.Table:
        if name not in SYSTEM_TABLES:
            raise _unknown(f"{_SCHEMA}.{name}", name)
        client = self._session.client
        if client is None and name in STORED:
            client = self._session.required_client(f"system.{name}")
        return system_rows(name, client, max_rows=self._limits.scanned_rows)

    def _argument(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Placeholder):
            value = _parameter(self._parameters, node)
        elif isinstance(node, exp.Literal) and node.is_string:
            value = node.this
        else:
            value = None
        if not isinstance(value, str) or not value:
            raise SqlError(f"{node.sql('duckdb')[:_SHOWN_CHARACTERS]} is not a table in quotes")
        return value


def _table_name(text: str) -> TableName:
    """Read the name of a table as statements have it, or a path."""
    if "`" in text:
        parser = Parser(text)
        found = parser.table()
        parser.finish()
        return found
    return TableName(text=text, is_path="/" in text)


def _parameter(parameters: Any, node: exp.Placeholder) -> Any:
    if not hasattr(parameters, "keys") or node.name not in parameters:
        raise SqlError("the table of a function is a string, or a parameter with a name")
    return parameters[node.name]


def _unknown(shown: str, name: str) -> SqlError:
    known = [*SYSTEM_TABLES, *TABLE_FUNCTIONS]
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(f"{_SCHEMA}.{one}" for one in SYSTEM_TABLES)
    functions = ", ".join(f"{_SCHEMA}.{one}('t')" for one in TABLE_FUNCTIONS)
    message = f"there is no system table {shown[:_SHOWN_CHARACTERS]}"
    known_ones = f"system tables: {listed}, {functions}"
    return SqlError(message, hint=f"did you mean {_SCHEMA}.{near[0]}?" if near else known_ones)


def _duckdb_parameters(tree: exp.Expr, given: Any) -> Any:
    """Return the parameters that are left after tables were resolved, all of them used."""
    names = [node.name for node in tree.find_all(exp.Placeholder)]
    if hasattr(given, "keys"):
        missing = [name for name in names if name not in given]
        if missing:
            raise SqlError(f"there is no parameter named {missing[0]!r}")
        return {name: given[name] for name in names} or None
    if len(names) != len(given or ()):
        raise SqlError(f"the query has {len(names)} parameters, {len(given or ())} were given")
    return list(given) if given else None


def _run(
    query: str, parameters: Any, tables: Mapping[str, pa.Table], limits: QueryLimits
) -> pa.Table:
    config: dict[str, Any] = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MEMORY,
        "threads": 1,
        "temp_directory": "",
    }
    with duckdb.connect(":memory:", config=config) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            connection.register(name, rows)
        connection.execute("SET lock_configuration = true")
        is_over = threading.Event()
        timer = threading.Timer(limits.seconds, _stop, (connection, is_over))
        timer.start()
        try:
            reader = connection.sql(query, params=parameters).to_arrow_reader(1024)
            return _first_rows(reader, limits.rows + 1)
        except (duckdb.Error, pa.ArrowException) as error:
            if is_over.is_set():
                raise SqlError(f"the query took more than {limits.seconds:g} s") from error
            raise SqlError(f"the query failed: {_short(error)}") from error
        finally:
            timer.cancel()


def _stop(connection: duckdb.DuckDBPyConnection, is_over: threading.Event) -> None:
    is_over.set()
    connection.interrupt()


def _first_rows(reader: pa.RecordBatchReader, count: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    for batch in reader:
        batches.append(batch)
        if sum(one.num_rows for one in batches) >= count:
            break
    return pa.Table.from_batches(batches, reader.schema)


def _short(error: Exception) -> str:
    lines: Sequence[str] = str(error).split("\n\n")
    return lines[0][:_SHOWN_CHARACTERS] if lines else type(error).__name__
