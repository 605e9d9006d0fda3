"""DuckDB for queries that need no limits of their own.

To open a database takes 8 to 18 ms of CPU, because all of its functions are registered anew: more
than most queries here. So there is one for the whole process, and each asker gets a connection to
it. Tables that are registered or temporary, and settings of a session, are that connection's own.
"""

from __future__ import annotations

import os
from tempfile import gettempdir
from threading import Lock

import duckdb

__all__ = ["connect"]

_lock = Lock()
#: By process, because a fork has none of the threads, and by the number of threads.
_databases: dict[tuple[int, int | None], duckdb.DuckDBPyConnection] = {}


def connect(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return a new connection, in UTC; `threads` is how many work on a query, by default all."""
    key = os.getpid(), threads
    with _lock:
        try:
            return _connection(_databases[key])
        except (KeyError, duckdb.Error):
            # Some errors leave a database that answers nothing any more.
            _databases[key] = _open(threads)
            return _connection(_databases[key])


def _connection(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection = database.cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _open(threads: int | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A file may be another one by now, under the same name.
        "enable_external_file_cache": False,
        "temp_directory": f"{gettempdir()}/lakehand-queries-{os.getpid()}-{threads or 'all'}",
    }
    if threads is not None:
        config |= {"threads": threads, "async_threads": 0}
    return duckdb.connect(":memory:", config=config)
