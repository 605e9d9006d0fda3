"""DuckDB databases that are opened once and used often, and Arrow rows as DuckDB takes them."""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.types as pat

from lakehand.temporary import held_spill_directory, spill_prefix, user_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Config = dict[str, str | bool | int | float | list[str]]

_lock = Lock()
#: By process, because a fork has none of the threads, and by the number of threads.
_databases: dict[tuple[int, int | None], duckdb.DuckDBPyConnection] = {}
#: Where each of them was told to spill.
_spill_roots: dict[tuple[int, int | None], str] = {}
#: Databases with limits that are not in use, and what each was opened for.
_idle: deque[tuple[str, duckdb.DuckDBPyConnection]] = deque(maxlen=2)


def connect(*, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return a new connection, in UTC; `threads` is how many work on a query, by default all."""
    key, root = (os.getpid(), threads), user_directory()
    with _lock:
        if _spill_roots.get(key) == root:
            # Some errors leave a database that answers nothing any more.
            with suppress(duckdb.Error):
                return _connection(_databases[key])
        _databases[key], _spill_roots[key] = _open(threads, root), root
        return _connection(_databases[key])


@contextmanager
def lease(
    config: Config, *, spill_directory: str | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a connection, in UTC, to a database that is used by this block alone.

    What does not fit into its memory goes to `spill_directory`, by default that of the system.
    """
    limits = {name: value for name, value in config.items() if name != "threads"}
    purpose = f"{os.getpid()} {spill_directory} {limits}"
    with held_spill_directory(spill_directory) as spilled, ExitStack() as ended:
        database = _take_idle(purpose) or _open_with({**limits, "threads": 1})
        # After an error it is unknown whether it still answers.
        ended.callback(database.close)
        with _connection(database) as connection:
            _prepare(connection, config, spilled)
            yield connection
            # A thread that stays without work makes malloc give all free memory back, which the
            # next who need it have cleared again.
            connection.execute("SET threads = 1")
        # One that has spilled cannot be told another place.
        if not any(Path(spilled).glob("*")):
            ended.pop_all()
            with _lock:
                _idle.append((purpose, database))


def _take_idle(purpose: str) -> duckdb.DuckDBPyConnection | None:
    with _lock:
        for place, (found, database) in enumerate(_idle):
            if found == purpose:
                del _idle[place]
                return database
    return None


def _connection(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection = database.cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _prepare(connection: duckdb.DuckDBPyConnection, config: Config, spilled: str) -> None:
    place = f"{spilled}/rows".replace("'", "''")
    connection.execute(f"SET temp_directory = '{place}'")
    connection.execute(
        f"SET threads = {config['threads']}" if "threads" in config else "RESET threads"
    )


def _open(threads: int | None, spill_directory: str) -> duckdb.DuckDBPyConnection:
    config: Config = {} if threads is None else {"threads": threads, "async_threads": 0}
    return _open_with(config | {"temp_directory": _new_directory(spill_directory)})


def private_spill_directory() -> str:
    """Return where a new database may spill: DuckDB's own choice is open to all, and is `.tmp`."""
    return _new_directory(user_directory())


def _new_directory(parent: str) -> str:
    return f"{spill_prefix(parent)}{uuid4().hex}"


def _open_with(config: Config) -> duckdb.DuckDBPyConnection:
    common: Config = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # A file may be another one by now, under the same name.
        "enable_external_file_cache": False,
        "temp_directory": "",
    }
    return duckdb.connect(":memory:", config=common | config)


def unsliced(rows: pa.Table) -> pa.Table:
    """Return the same rows, with nested structs copied where they are a part of a larger array.

    DuckDB 2.0 refuses a struct that holds a struct and begins behind an offset, as it does in every
    slice of an array but the first.
    """
    for position, column in enumerate(rows.columns):
        if _holds_nested_struct(column.type) and any(map(_has_offset, column.chunks)):
            copies = [pa.concat_arrays([chunk]) for chunk in column.chunks]
            copied = pa.chunked_array(copies, column.type)
            rows = rows.set_column(position, rows.schema.field(position), copied)
    return rows


def is_taken_sliced(schema: pa.Schema) -> bool:
    """Return whether DuckDB takes any slice of rows with these columns unchanged."""
    return not any(map(_holds_nested_struct, schema.types))


def _holds_nested_struct(kind: pa.DataType, *, is_inside: bool = False) -> bool:
    parts = [kind.field(index).type for index in range(kind.num_fields)]
    if pat.is_struct(kind):
        return is_inside or any(_holds_nested_struct(part, is_inside=True) for part in parts)
    return any(_holds_nested_struct(part, is_inside=is_inside) for part in parts)


def _has_offset(array: pa.Array) -> bool:
    return bool(array.offset) or any(map(_has_offset, _parts(array)))


def _parts(array: pa.Array) -> Sequence[pa.Array]:
    kind = array.type
    if pat.is_struct(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pat.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if pat.is_list(kind) or pat.is_large_list(kind) else []
