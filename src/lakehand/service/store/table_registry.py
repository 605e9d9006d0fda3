"""The tables that the service looks after."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Double, bindparam, case, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.errors import JobNotFoundError
from lakehand.service.store.database_schema import HOLDS, JOBS, MEASUREMENTS, TABLES
from lakehand.service.store.events import record_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row

    from lakehand.service.store.database import Database

#: Until when a table is paused whose pause has no end.
FOREVER = 9_999_999_999.0
#: No table is looked at later than so many seconds after its last look.
LONGEST_WAIT = 86_400.0
#: Addresses in one statement.
_URLS_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredTable:
    """A row of the table of tables."""

    id: int
    url: str
    name: str | None
    format: str | None
    source: str
    storage_profile: str | None
    found_at: float
    seen_at: float
    gone_at: float | None
    policy: str | None
    overrides: dict[str, Any]
    paused_until: float | None
    paused_by: str | None
    paused_why: str | None
    version: int | None
    commits_since: int
    bytes_since: int
    look_at: float
    look_every: float
    assessed_at: float | None
    assessed_version: int | None
    summary: dict[str, Any] | None
    health_score: int | None
    last_error: dict[str, Any] | None
    error_count: int

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        return cls(**row._mapping)  # noqa: SLF001  the documented way to a row's names


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTable:
    """A table that a source has found."""

    url: str
    format: str | None = None
    name: str | None = None


class TableRegistry:
    """The tables of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, found: FoundTable, *, source: str = "manual", by: str | None = None
    ) -> tuple[RegisteredTable, bool]:
        """Register a table, or see one again; return it, and whether it is new."""
        with self._database.transaction() as connection:
            return self._add(connection, found, source, by)

    def _add(
        self, connection: Connection, found: FoundTable, source: str, by: str | None
    ) -> tuple[RegisteredTable, bool]:
        now = self._database.now()
        known = connection.execute(_BY_URL, {"url": found.url}).one_or_none()
        given = {"url": found.url, "name": found.name, "format": found.format, "source": source}
        row = connection.execute(_registering(now, self._database.is_sqlite), given).one()
        table = RegisteredTable.of(row)
        if known is None or known.gone_at is not None:
            kind = "table.found" if known is None else "table.found_again"
            record_event(connection, now, kind, table=table.id, by=by, url=table.url, source=source)
        return table, known is None

    def see(self, found: Sequence[FoundTable], *, source: str) -> tuple[int, list[int]]:
        """Take over what a source found; return how many are new, and the ids of those gone.

        A table that its source no longer finds is marked as gone. Nothing of it is deleted.
        """
        now = self._database.now()
        with self._database.transaction() as connection:
            changed = self._see_again(connection, found, now)
            new = sum(self._add(connection, one, source, None)[1] for one in changed)
            urls = {one.url for one in found}
            known = connection.execute(
                select(TABLES.c.id, TABLES.c.url).where(
                    TABLES.c.source == source, TABLES.c.gone_at.is_(None)
                )
            ).all()
            gone = [row.id for row in known if row.url not in urls]
            for table_id in gone:
                self._mark_gone(connection, table_id, now)
        return new, gone

    def _see_again(
        self, connection: Connection, found: Sequence[FoundTable], now: Any
    ) -> list[FoundTable]:
        """Note that known tables were seen, many at a time; return those that are not as known."""
        changed = []
        for first in range(0, len(found), _URLS_AT_ONCE):
            part = found[first : first + _URLS_AT_ONCE]
            rows = connection.execute(_BY_URLS, {"urls": [one.url for one in part]}).all()
            known = {row.url: row for row in rows}
            changed += [one for one in part if not _is_known(one, known.get(one.url))]
            ids = [row.id for row in rows]
            connection.execute(update(TABLES).where(TABLES.c.id.in_(ids)).values(seen_at=now))
        return changed

    def _mark_gone(self, connection: Connection, table_id: int, now: Any) -> None:
        connection.execute(update(TABLES).where(TABLES.c.id == table_id).values(gone_at=now))
        ended = connection.execute(
            update(JOBS)
            .where(JOBS.c.table_id == table_id, JOBS.c.state == "queued")
            .values(state="cancelled", outcome="table_gone", ended_at=now, waits_for=None)
            .returning(JOBS.c.id)
        ).scalars()
        for job_id in ended.all():
            record_event(
                connection, now, "job.cancelled", job=job_id, table=table_id, outcome="table_gone"
            )
        record_event(connection, now, "table.gone", table=table_id)

    def remove(self, table_id: int, *, by: str | None = None) -> None:
        """Stop looking after a table. Its files and its history stay."""
        with self._database.transaction() as connection:
            self._required(connection, table_id)
            self._mark_gone(connection, table_id, self._database.now())
            connection.execute(
                update(TABLES).where(TABLES.c.id == table_id).values(source="removed")
            )
            record_event(connection, self._database.now(), "table.removed", table=table_id, by=by)

    def find(self, name_or_url: str) -> RegisteredTable:
        """Return a table by its id, name or URL; JobNotFoundError if there is none."""
        conditions = [TABLES.c.url == name_or_url.rstrip("/"), TABLES.c.name == name_or_url]
        if name_or_url.isdigit():
            conditions.append(TABLES.c.id == int(name_or_url))
        with self._database.reading() as connection:
            row = connection.execute(select(TABLES).where(or_(*conditions))).first()
        if row is None:
            raise _no_table(name_or_url)
        return RegisteredTable.of(row)

    def get(self, table_id: int) -> RegisteredTable:
        with self._database.reading() as connection:
            return self._required(connection, table_id)

    def _required(self, connection: Connection, table_id: int) -> RegisteredTable:
        row = connection.execute(select(TABLES).where(TABLES.c.id == table_id)).one_or_none()
        if row is None:
            raise _no_table(str(table_id))
        return RegisteredTable.of(row)

    def listed(
        self, *, source: str | None = None, is_gone: bool = False, after: int = 0, limit: int = 1000
    ) -> list[RegisteredTable]:
        """Return tables by id; `after` continues a listing above that id."""
        wanted = select(TABLES).where(TABLES.c.id > after).order_by(TABLES.c.id).limit(limit)
        if not is_gone:
            wanted = wanted.where(TABLES.c.gone_at.is_(None))
        if source is not None:
            wanted = wanted.where(TABLES.c.source == source)
        with self._database.reading() as connection:
            return [RegisteredTable.of(row) for row in connection.execute(wanted)]

    def pause(
        self, table_id: int, *, by: str, why: str | None = None, until: float | None = None
    ) -> None:
        """Start no job of a table until a time, or until it is resumed."""
        values = {"paused_until": until or FOREVER, "paused_by": by, "paused_why": why}
        self._change(table_id, "table.paused", by, values)

    def resume(self, table_id: int, *, by: str | None = None) -> None:
        """Let the jobs of a table start again, those of a held verb too."""
        values = {"paused_until": None, "paused_by": None, "paused_why": None}
        self._change(table_id, "table.resumed", by, values)
        with self._database.transaction() as connection:
            connection.execute(HOLDS.delete().where(HOLDS.c.table_id == table_id))

    def set_overrides(
        self, table_id: int, overrides: Mapping[str, Any], *, by: str | None = None
    ) -> None:
        """Give a table settings of its own, above its policy; they replace those that it had."""
        self._change(table_id, "table.set", by, {"overrides": dict(overrides)})

    def _change(self, table_id: int, kind: str, by: str | None, values: Mapping[str, Any]) -> None:
        with self._database.transaction() as connection:
            self._required(connection, table_id)
            connection.execute(update(TABLES).where(TABLES.c.id == table_id).values(**values))
            record_event(connection, self._database.now(), kind, table=table_id, by=by)

    # -- looking at tables ------------------------------------------------------------------------

    def to_look_at(self, *, limit: int = 100) -> list[RegisteredTable]:
        """Return the tables whose time to be looked at has come, the longest overdue first."""
        now = self._database.now()
        # A time beyond the longest wait was noted by a clock that was ahead.
        is_due = or_(TABLES.c.look_at <= now, TABLES.c.look_at > now + LONGEST_WAIT)
        due = select(TABLES).where(TABLES.c.gone_at.is_(None), is_due)
        with self._database.reading() as connection:
            rows = connection.execute(due.order_by(TABLES.c.look_at).limit(limit))
            return [RegisteredTable.of(row) for row in rows]

    def notified(self, url: str, *, version: int | None, bytes_added: int = 0) -> int | None:
        """Note that a table has a new version: it is looked at next. Return its id, if known."""
        newest = TABLES.c.version if version is None else _newer(TABLES.c.version, version)
        statement = (
            update(TABLES)
            .where(TABLES.c.url == url.rstrip("/"), TABLES.c.gone_at.is_(None))
            .values(
                version=newest,
                commits_since=TABLES.c.commits_since + 1,
                bytes_since=TABLES.c.bytes_since + bytes_added,
                look_at=self._database.now(),
            )
            .returning(TABLES.c.id)
        )
        with self._database.transaction() as connection:
            found: int | None = connection.execute(statement).scalar_one_or_none()
        return found

    def looked(self, table_id: int, *, look_every: float, **values: Any) -> None:
        """Note that a table was looked at, what was seen, and when to look again."""
        statement = _noting(self._database.now(), tuple(values))
        given = {f"new_{name}": value for name, value in values.items()}
        with self._database.transaction() as connection:
            connection.execute(statement, {"table": table_id, "every": look_every, **given})

    def looked_all(self, looks: Sequence[Mapping[str, Any]]) -> None:
        """Note of many tables that they were looked at and nothing is due, as one transaction."""
        if looks:
            with self._database.transaction() as connection:
                connection.execute(_looking(self._database.now()), looks)

    def failed_to_look(self, table_id: int, error: Mapping[str, Any], *, look_every: float) -> None:
        """Note that a table could not be read; the others are not affected."""
        failed = {"last_error": dict(error), "error_count": TABLES.c.error_count + 1}
        later = {"look_every": look_every, "look_at": self._database.now() + look_every}
        with self._database.transaction() as connection:
            connection.execute(
                update(TABLES).where(TABLES.c.id == table_id).values(**failed, **later)
            )

    def measured(self, table_id: int, version: int, values: Mapping[str, Any]) -> None:
        """Keep the numbers of an assessment, for the curve over time."""
        with self._database.transaction() as connection:
            connection.execute(
                MEASUREMENTS.insert().values(
                    table_id=table_id, at=self._database.now(), version=version, **values
                )
            )

    # -- holds ------------------------------------------------------------------------------------

    def hold(
        self, table_id: int, verb: str, error: Mapping[str, Any], *, job_id: int, lakehand: str
    ) -> None:
        """Queue a verb of a table no more until something changes: retrying cannot cure it."""
        with self._database.transaction() as connection:
            table = self._required(connection, table_id)
            values = {
                "held_at": self._database.now(),
                "job_id": job_id,
                "error": dict(error),
                "table_version": table.version,
                "lakehand_version": lakehand,
            }
            dialect = sqlite if self._database.is_sqlite else postgresql
            new = dialect.insert(HOLDS).values(table_id=table_id, verb=verb, **values)
            connection.execute(
                new.on_conflict_do_update(
                    index_elements=[HOLDS.c.table_id, HOLDS.c.verb], set_=values
                )
            )
            record_event(
                connection,
                self._database.now(),
                "table.held",
                table=table_id,
                job=job_id,
                verb=verb,
                code=error.get("code"),
            )

    def held_verbs(self, table_id: int, *, lakehand: str) -> dict[str, dict[str, Any]]:
        """Return the errors of verbs that are held; another version of the table lifts a hold."""
        with self._database.reading() as connection:
            rows = connection.execute(_HELD, {"table": table_id, "lakehand": lakehand}).all()
        return {row.verb: row.error for row in rows}


def _is_known(found: FoundTable, row: Any) -> bool:
    if row is None:
        return False
    return row.format == found.format and (row.name is not None or found.name is None)


@functools.lru_cache(maxsize=64)
def _noting(now: Any, names: tuple[str, ...]) -> Any:
    every = bindparam("every", type_=Double)
    given: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    changed = update(TABLES).where(TABLES.c.id == bindparam("table"))
    return changed.values(look_every=every, look_at=now + every, **given)


@functools.lru_cache(maxsize=64)
def _looking(now: Any) -> Any:
    return (
        update(TABLES)
        # A table that was notified of since is looked at again.
        .where(TABLES.c.id == bindparam("table"), TABLES.c.look_at == bindparam("due_at"))
        .values(
            look_at=now + bindparam("look_every", type_=Double),
            look_every=bindparam("look_every", type_=Double),
            version=bindparam("version"),
            commits_since=bindparam("commits_since"),
            policy=bindparam("policy"),
            last_error=None,
            error_count=0,
        )
    )


@functools.lru_cache(maxsize=64)
def _registering(now: Any, is_sqlite: bool) -> Any:  # noqa: FBT001  cached by position
    new = (sqlite if is_sqlite else postgresql).insert(TABLES)
    columns = ("url", "name", "format", "source")
    given: dict[str, Any] = {name: bindparam(name) for name in columns}
    new = new.values(found_at=now, seen_at=now, look_at=now, **given)
    return new.on_conflict_do_update(
        index_elements=[TABLES.c.url],
        set_={
            "seen_at": now,
            "gone_at": None,
            "format": new.excluded.format,
            "name": case((TABLES.c.name.is_(None), new.excluded.name), else_=TABLES.c.name),
        },
    ).returning(TABLES)


_HELD = (
    select(HOLDS.c.verb, HOLDS.c.error)
    .join(TABLES, TABLES.c.id == HOLDS.c.table_id)
    .where(
        HOLDS.c.table_id == bindparam("table"),
        HOLDS.c.lakehand_version == bindparam("lakehand"),
        HOLDS.c.table_version.is_not_distinct_from(TABLES.c.version),
    )
)
_BY_URL = select(TABLES).where(TABLES.c.url == bindparam("url"))
_BY_URLS = select(TABLES.c.id, TABLES.c.url, TABLES.c.format, TABLES.c.name).where(
    TABLES.c.url.in_(bindparam("urls", expanding=True)), TABLES.c.gone_at.is_(None)
)


def _newer(known: Any, version: int) -> Any:
    return case((or_(known.is_(None), known < version), version), else_=known)


def _no_table(name: str) -> JobNotFoundError:
    hint = "lakehand tables list shows them, lakehand tables add registers one"
    return JobNotFoundError(f"there is no registered table {name!r}", hint=hint)
