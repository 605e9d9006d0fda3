"""Connections to the job store: transactions, the clock, and errors that say what to do."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, func, literal, make_url, select
from sqlalchemy import exc as database_errors
from sqlalchemy.types import Double

from lakehand.errors import JobStoreError, NotInstalledError, ValidationError
from lakehand.service.store.database_schema import METADATA, SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, ColumnElement, Connection, Engine

    from lakehand.observe.clock import Clock

#: RETURNING came with it.
_OLDEST_SQLITE = (3, 35)
_BUSY_SECONDS = 30.0


class Database:
    """The job store's database. Each method of the store is one transaction."""

    def __init__(self, engine: Engine, *, clock: Clock | None = None) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._clock = clock
        # SQLite has one writer, and lets the others sleep and ask again, ever longer: threads of
        # one process take turns without that. Again in one thread: SQLite says that it is locked.
        self._turn: AbstractContextManager[Any] = RLock() if self.is_sqlite else nullcontext()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block as one transaction; JobStoreError if the database cannot be used."""
        try:
            with self._turn, self.engine.begin() as connection:
                yield connection
        except database_errors.IntegrityError:
            raise
        except database_errors.SQLAlchemyError as error:
            raise _typed(error, self.engine.url) from error

    def now(self) -> ColumnElement[float]:
        """Return the time in seconds: that of the database, which all workers share."""
        if self._clock is not None:
            return literal(self._clock.now().timestamp(), Double)
        if self.is_sqlite:  # All processes are on one machine.
            return (func.julianday("now") - 2440587.5) * 86400.0
        return func.extract("epoch", func.now()).cast(Double)

    def time(self) -> float:
        """Return what `now` is."""
        with self.transaction() as connection:
            return float(connection.execute(select(self.now())).scalar_one())

    def close(self) -> None:
        self.engine.dispose()


def open_database(url: str, *, clock: Clock | None = None) -> Database:
    """Open the job store at an SQLAlchemy URL, and create its tables if it is empty."""
    database = Database(_create_engine(url), clock=clock)
    with database.transaction() as connection:
        METADATA.create_all(connection)
        found = connection.execute(select(SCHEMA.c.version)).scalar_one_or_none()
        if found is None:
            connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))
    if found is not None and found > SCHEMA_VERSION:
        database.close()
        raise JobStoreError(
            f"the job store {database.engine.url.render_as_string()} was written by a newer "
            f"lakehand: its schema version is {found}, this one knows {SCHEMA_VERSION}",
            hint="upgrade lakehand on this machine",
        )
    return database


def is_missing(url: str) -> bool:
    """Whether a URL names an SQLite file that does not exist."""
    try:
        parsed = make_url(url)
    except database_errors.ArgumentError:
        return False  # Opening it says what is wrong.
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in {
        None,
        "",
        ":memory:",
    }
    return is_file and not Path(str(parsed.database)).exists()


def _create_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        dialect = parsed.get_backend_name()
    except database_errors.ArgumentError as error:
        message = f"{url!r} is not the URL of a job store"
        hint = "for example sqlite:////var/lib/lakehand/lakehand.db or postgresql+psycopg://host/db"
        raise ValidationError(message, field="store", hint=hint) from error
    if dialect == "sqlite":
        return _sqlite_engine(parsed)
    if dialect != "postgresql":
        message = f"the job store cannot be in {dialect}: SQLite and PostgreSQL are supported"
        raise ValidationError(message, field="store")
    return _postgresql_engine(parsed)


def _sqlite_engine(url: URL) -> Engine:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        message = f"SQLite {sqlite3.sqlite_version} is too old for the job store: 3.35 is needed"
        raise JobStoreError(message, hint="use a newer Python or PostgreSQL")
    if url.database:
        directory = Path(url.database).absolute().parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"the directory {directory} of the job store cannot be created: {error}"
            raise JobStoreError(message) from error
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # Transactions are begun below, not by the driver.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could find that it lost to another.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True, pool_recycle=1800, pool_size=8)
    except ModuleNotFoundError as error:
        message = f"the driver {error.name} of the job store is not installed"
        hint = 'pip install "lakehand[postgresql]"'
        raise NotInstalledError(message, hint=hint) from error


def _typed(error: database_errors.SQLAlchemyError, url: URL) -> JobStoreError:
    # Of the driver's message the first line: what follows may quote values of rows.
    cause = getattr(error, "orig", None) or error
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return JobStoreError(f"the job store {url.render_as_string()} failed: {reason}")
