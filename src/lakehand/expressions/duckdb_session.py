"""The DuckDB session that evaluates predicates and compares keys."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import duckdb

from lakehand.duckdb_pool import Config, private_spill_directory, unsliced
from lakehand.errors import PredicateError

if TYPE_CHECKING:
    import pyarrow as pa

_local = threading.local()


def compute(expressions: str, values: pa.Table) -> pa.Table:
    """Return one column for each SQL expression over the columns of `values`."""
    try:
        return select(f"SELECT {expressions} FROM given", given=values)
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise PredicateError(f"the predicate cannot be evaluated: {reason}") from error


def select(query: str, **tables: pa.Table) -> pa.Table:
    """Return the result of a query over `tables`, by their names."""
    session = _session()
    for name, values in tables.items():
        session.register(name, unsliced(values))
    try:
        return session.sql(query).to_arrow_table()
    except duckdb.Error:
        _forget_session()  # After some errors a session cannot be used any more.
        raise
    finally:
        if session is getattr(_local, "session", None):
            for name in tables:
                session.unregister(name)


def _forget_session() -> None:
    _local.session = None


def _session() -> duckdb.DuckDBPyConnection:
    """Return this thread's session, without access to files, the network or other sessions."""
    session: duckdb.DuckDBPyConnection | None = getattr(_local, "session", None)
    if session is None:
        config: Config = {
            "enable_external_access": False,
            "threads": 1,
            "temp_directory": private_spill_directory(),
        }
        session = duckdb.connect(":memory:", config=config)
        session.execute("SET TimeZone = 'UTC'")
        # One rewrites `n + 1 > 0` to `n > -1`, which hides an overflow error; the other makes lists
        # of values joins, which promise no order, and answers belong to rows by their position.
        session.execute("SET disabled_optimizers = 'expression_rewriter,in_clause'")
        session.execute("SET lock_configuration = true")
        _local.session = session
    return session
