"""Entries of commits in PostgreSQL, in a table of lakehand's own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.storage.commit_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATE = """
CREATE TABLE IF NOT EXISTS lakehand_commit_entries (
    table_path text NOT NULL, file_name text COLLATE "C" NOT NULL,
    temporary text NOT NULL, is_complete boolean NOT NULL DEFAULT false,
    PRIMARY KEY (table_path, file_name)
)"""
_COLUMNS = "table_path, file_name, temporary, is_complete"
_INSERT = """
INSERT INTO lakehand_commit_entries (table_path, file_name, temporary) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING"""
_REPLACE = """
UPDATE lakehand_commit_entries SET temporary = %s, is_complete = false
WHERE table_path = %s AND file_name = %s AND temporary = %s"""
_FIND = f"""
SELECT {_COLUMNS} FROM lakehand_commit_entries WHERE table_path = %s AND file_name = %s"""
_LATEST = f"""
SELECT {_COLUMNS} FROM lakehand_commit_entries WHERE table_path = %s
ORDER BY file_name DESC LIMIT 1"""
_COMPLETE = """
UPDATE lakehand_commit_entries SET is_complete = true
WHERE table_path = %s AND file_name = %s AND temporary = %s"""


class PostgresqlEntries:
    """The table `lakehand_commit_entries` of a database; it is created at the first use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_created = False

    def __repr__(self) -> str:
        return "PostgresqlEntries()"  # the URL may contain a password

    def insert(self, entry: Entry) -> bool:
        return self._run(_INSERT, entry.table, entry.name, entry.temporary)[0] == 1

    def replace(self, old: Entry, new: Entry) -> bool:
        return self._run(_REPLACE, new.temporary, old.table, old.name, old.temporary)[0] == 1

    def find(self, table: str, name: str) -> Entry | None:
        return self._read(_FIND, table, name)

    def latest(self, table: str) -> Entry | None:
        return self._read(_LATEST, table)

    def complete(self, entry: Entry) -> None:
        self._run(_COMPLETE, entry.table, entry.name, entry.temporary)

    def _read(self, statement: str, *values: str) -> Entry | None:
        _, row = self._run(statement, *values)
        if row is None:
            return None
        return Entry(table=row[0], name=row[1], temporary=row[2], is_complete=row[3])

    def _run(self, statement: str, *values: str) -> tuple[int, Any]:
        """Return how many rows a statement changed or found, and the first one that it found."""
        with self._connection() as connection:
            if not self._is_created:
                connection.execute(_CREATE)
                self._is_created = True
            cursor = connection.execute(statement, values)
            return cursor.rowcount, cursor.fetchone() if cursor.description else None

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError as error:
            message = "commits through PostgreSQL need psycopg, which is not installed"
            hint = 'pip install "lakehand[postgresql]"'
            raise errors.NotInstalledError(message, hint=hint) from error
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                yield connection
        except psycopg.OperationalError:
            # Its message may contain the URL.
            raise errors.StoreUnreachableError(
                "the PostgreSQL database with the entries of commits does not answer",
                operation="commit",
                hint="check locking_url and the network, or retry later",
            ) from None
        except psycopg.Error as error:
            raise errors.AccessDeniedError(
                f"the PostgreSQL database refused a request: {error.sqlstate}",
                operation="commit",
                hint="the role needs to create and change the table lakehand_commit_entries",
            ) from None
