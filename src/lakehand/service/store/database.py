"""Connections to the job store: transactions, the clock, and errors that say what to do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, create_engine, event, func, make_url, or_, select
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
#: Identifies the lock of PostgreSQL under which tables are created.
_CREATION = 0x6C616B65
_BUSY_SECONDS = 30.0
#: In seconds.
LONGEST_LEASE = 86_400.0
#: A connection of PostgreSQL that was used so shortly before is not tried out.
_TRUSTED_SECONDS = 1.0
#: A process that hangs in a transaction keeps its locks no longer than this: PostgreSQL ends its
#: session, and the others go on. A transaction of the store takes milliseconds.
_IDLE_SECONDS = 10.0
#: Until a server that does not answer is called unreachable; a URL may say otherwise.
_CONNECT_SECONDS = 10
#: Option of connections that only read.
_READS = "lakehand_reads"


class Database:
    """The job store's database. Each method of the store is one transaction."""

    def __init__(self, engine: Engine, *, clock: Clock | None = None) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        # SQLite has one writer, and lets the others sleep up to 100 ms and ask again: threads take
        # turns without that. Again in one thread: SQLite says that it is locked.
        self._turn: AbstractContextManager[Any] = (
            threading.RLock() if self.is_sqlite else nullcontext()
        )
        self._reader = engine.execution_options(**{_READS: True})
        #: The connection of `one_state`, of each thread.
        self._shared = threading.local()
        self._now = _now(clock, is_sqlite=self.is_sqlite)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block as one transaction; JobStoreError if the database cannot be used."""
        with self._typed_errors(), self._turn, self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except database_errors.IntegrityError:
            raise
        except database_errors.SQLAlchemyError as error:
            if self.is_sqlite and "no such table" in str(error):
                self.create_tables()
                raise self._emptied() from error
            raise _typed(error, self.engine.url) from error

    def create_tables(self) -> int:
        """Create what is missing; return the version of the schema."""
        with self.transaction() as connection:
            if not self.is_sqlite:
                # Of services that begin at the same moment one creates them, and the others wait.
                connection.execute(select(func.pg_advisory_xact_lock(_CREATION)))
            METADATA.create_all(connection)
            found: int | None = connection.execute(select(SCHEMA.c.version)).scalar_one_or_none()
            if found is None:
                connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))
        return SCHEMA_VERSION if found is None else found

    def _emptied(self) -> JobStoreError:
        where = shown_url(self.engine.url)
        return JobStoreError(
            f"the job store {where} was deleted or replaced while it was used: it is empty now",
            hint="tables are found again; those added by hand, pauses and the history are lost",
        )

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run a block that reads and writes nothing: it waits for no other."""
        shared: Connection | None = getattr(self._shared, "connection", None)
        if shared is not None:
            with self._typed_errors():
                yield shared
            return
        with self._typed_errors(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """Let all that this thread reads in a block be of one time, over one connection.

        What it writes in the block is written at once, and not read in it.
        """
        with self._typed_errors(), self._reader.connect() as connection:
            self._shared.connection = connection
            try:
                yield
            finally:
                self._shared.connection = None

    def now(self) -> ColumnElement[float]:
        """Return the time in seconds: that of the database, which all workers share.

        It is the same object each time, so that statements with it are built once.
        """
        return self._now

    def time(self) -> float:
        """Return what `now` is."""
        with self.reading() as connection:
            return float(connection.execute(select(self.now())).scalar_one())

    def close(self) -> None:
        self.engine.dispose()


def _now(clock: Clock | None, *, is_sqlite: bool) -> ColumnElement[float]:
    if clock is not None:
        return bindparam("now", type_=Double, callable_=lambda: clock.now().timestamp())
    if is_sqlite:  # All processes are on one machine.
        return (func.julianday("now") - 2440587.5) * 86400.0
    return func.extract("epoch", func.now()).cast(Double)


def is_over(until: Any, now: Any) -> Any:
    """Return the condition that a lease is over; one of days was given by a wrong clock."""
    return or_(until < now, until > now + LONGEST_LEASE)


def open_database(url: str, *, clock: Clock | None = None) -> Database:
    """Open the job store at an SQLAlchemy URL, and create its tables if it is empty."""
    database = Database(_create_engine(url), clock=clock)
    found = database.create_tables()
    if found > SCHEMA_VERSION:
        database.close()
        raise JobStoreError(
            f"the job store {shown_url(database.engine.url)} was written by a newer "
            f"lakehand: its schema version is {found}, this one knows {SCHEMA_VERSION}",
            hint="upgrade lakehand on this machine",
        )
    return database


def is_missing(url: str) -> bool:
    """Whether a URL names an SQLite file that does not exist."""
    try:
        parsed = make_url(url)
    except (database_errors.ArgumentError, ValueError):
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
    except (database_errors.ArgumentError, ValueError):  # a port that is no number
        # It may have a password: neither it nor the cause, which quotes it, is shown.
        message = "the value of store is not the URL of a job store"
        hint = "for example sqlite:////var/lib/lakehand/lakehand.db or postgresql+psycopg://host/db"
        raise ValidationError(message, field="store", hint=hint) from None
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
        _create_directory(Path(url.database).absolute().parent)
    # A connection above this number is opened for one use, and configured each time.
    size = {"pool_size": 16} if url.database else {}
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, **size)

    event.listen(engine, "do_connect", lambda *_: _create_private(url.database))

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # Transactions are begun below, not by the driver.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        record.info["file"] = _identity(url.database)

    @event.listens_for(engine, "checkout")
    def check(_connection: Any, record: Any, _proxy: Any) -> None:
        # A deleted file still answers those who have it open, and no others.
        if record.info["file"] != _identity(url.database):
            raise database_errors.DisconnectionError("the file of the job store was replaced")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could find that it lost to another.
        is_reader = connection.get_execution_options().get(_READS)
        connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")

    return engine


def _create_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the directory {directory} of the job store cannot be created: {error}"
        raise JobStoreError(message) from error


def _create_private(path: str | None) -> None:
    """Create the file of a new job store, for its owner only: it has conditions and names of users.

    The files next to it get the same mode from SQLite, which also says why one cannot be created.
    """
    if not path or path == ":memory:" or path.startswith("file:"):
        return
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _identity(path: str | None) -> tuple[int, int] | None:
    try:
        found = Path(path or "").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _postgresql_engine(url: URL) -> Engine:
    waiting = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    try:
        engine = create_engine(url, pool_recycle=1800, pool_size=16, connect_args=waiting)
    except ModuleNotFoundError as error:
        message = f"the driver {error.name} of the job store is not installed"
        hint = 'pip install "lakehand[postgresql]"'
        raise NotInstalledError(message, hint=hint) from error

    @event.listens_for(engine, "connect")
    def bound(connection: Any, _record: Any) -> None:
        limit = f"SET idle_in_transaction_session_timeout = {int(_IDLE_SECONDS * 1000)}"
        connection.execute(limit)
        connection.commit()

    @event.listens_for(engine, "checkin")
    def note(_connection: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(connection: Any, record: Any, _proxy: Any) -> None:
        # Asking each time whether the server is still there took a sixth of a claim.
        used_at = record.info.get("used_at")
        if used_at is None or time.monotonic() - used_at < _TRUSTED_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise database_errors.DisconnectionError("the server has gone away") from error

    return engine


def shown_url(url: URL) -> str:
    """Return the URL of a job store without its password, which may also be a parameter."""
    secret = [name for name in url.query if "password" in name.lower()]
    return url.difference_update_query(secret).render_as_string()


def _typed(error: database_errors.SQLAlchemyError, url: URL) -> JobStoreError:
    # Of the driver's message the first line: what follows may quote values of rows.
    cause = getattr(error, "orig", None) or error
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return JobStoreError(f"the job store {shown_url(url)} failed: {reason}")
