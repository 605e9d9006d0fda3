"""The tables that the service maintains."""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Double, and_, bindparam, case, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.errors import JobNotFoundError
from lakehand.service.store.database_schema import HOLDS, JOBS, MEASUREMENTS, TABLES
from lakehand.service.store.events import record_event
from lakehand.service.store.job_metrics import ended_job
from lakehand.service.store.records import FOREVER, FoundTable, record_json
from lakehand.service.store.service_metrics import count
from lakehand.storage.location import path_to_url

__all__ = ["FOREVER", "FoundTable", "RegisteredTable", "TableRegistry"]

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from lakehand.service.store.database import Database

#: Ids have fewer digits than this.
_ID_DIGITS = 18
#: Names among which the nearest one is looked for.
_NAMES_TRIED = 20_000
#: Sources of tables that were added or removed by hand.
_BY_HAND, _REMOVED = "manual", "removed"
#: No table is looked at later than this many seconds after its last look.
LONGEST_WAIT = 86_400.0
#: Addresses in one statement.
_URLS_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredTable:
    """A row of the table of tables."""

    #: Number of the table.
    id: int
    #: Canonical URL.
    url: str
    #: Name; several tables may have the same.
    name: str | None
    #: `delta` or `lance`.
    format: str | None
    #: Where it was found: the name of a source, `manual`, or `removed`.
    source: str
    #: Storage section of the configuration.
    storage_profile: str | None
    #: When it was found first.
    found_at: float
    #: When it was found last.
    seen_at: float
    #: Since when its source no longer finds it; null if it does.
    gone_at: float | None
    #: Policy at the last poll.
    policy: str | None
    #: Settings of this table alone, above its properties and its policy.
    overrides: dict[str, Any]
    #: Until when it is paused; null with a `paused_by`: until it is resumed.
    paused_until: float | None
    #: Who paused it.
    paused_by: str | None
    #: Why.
    paused_why: str | None
    #: The newest version that is known.
    version: int | None
    #: Commits since it was last maintained.
    commits_since: int
    #: Bytes written since then, as far as writers told.
    bytes_since: int
    #: When it is polled next.
    look_at: float
    #: Seconds between two polls.
    look_every: float
    #: When maintenance was last requested.
    assessed_at: float | None
    #: The version at that time.
    assessed_version: int | None
    #: When each scheduled verb is due next.
    scheduled: dict[str, dict[str, Any]]
    #: Numbers of the last assessment.
    summary: dict[str, Any] | None
    #: Its health score.
    health_score: int | None
    #: Why it could not be read at the last poll; null if it could.
    last_error: dict[str, Any] | None
    #: How often in a row it could not be read.
    error_count: int

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        return cls(**row._mapping)  # noqa: SLF001  the documented way to a row's names

    def is_paused(self, now: float) -> bool:
        return self.paused_until is not None and self.paused_until > now

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


class TableRegistry:
    """The tables of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, found: FoundTable, *, source: str = _BY_HAND, by: str | None = None
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
        if known is None or (known.gone_at is not None and table.gone_at is None):
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
            .returning(JOBS.c.id, JOBS.c.verb)
        ).all()
        for job_id, verb in ended:
            count(connection, ended_job(verb, "table_gone"))
            record_event(
                connection, now, "job.cancelled", job=job_id, table=table_id, outcome="table_gone"
            )
        record_event(connection, now, "table.gone", table=table_id)

    def remove(self, table_id: int, *, by: str | None = None) -> None:
        """Stop maintaining a table. Its files and its history stay."""
        with self._database.transaction() as connection:
            self._required(connection, table_id)
            self._mark_gone(connection, table_id, self._database.now())
            connection.execute(
                update(TABLES).where(TABLES.c.id == table_id).values(source=_REMOVED)
            )
            record_event(connection, self._database.now(), "table.removed", table=table_id, by=by)

    def find(self, name_or_url: str) -> RegisteredTable:
        """Return a table by its URL, path, id or name; JobNotFoundError if it is not exactly one.

        A table that is gone is found where no other has its name.
        """
        url = path_to_url(name_or_url) if "/" in name_or_url else name_or_url
        conditions = [TABLES.c.url == url, TABLES.c.name == name_or_url]
        number = int(name_or_url) if _is_id(name_or_url) else None
        if number is not None:
            conditions.append(TABLES.c.id == number)
        with self._database.reading() as connection:
            found = connection.execute(select(TABLES).where(or_(*conditions))).all()
            if not found:
                raise _no_table(name_or_url, _nearest(connection, name_or_url))
        for group in (
            [row for row in found if row.url == url],
            [row for row in found if row.id == number],
            [row for row in found if row.gone_at is None],
            found,
        ):
            if len(group) == 1:
                return RegisteredTable.of(group[0])
        raise _several(name_or_url, [row.url for row in found])

    def get(self, table_id: int) -> RegisteredTable:
        with self._database.reading() as connection:
            return self._required(connection, table_id)

    def _required(
        self, connection: Connection, table_id: int, *, is_locked: bool = False
    ) -> RegisteredTable:
        wanted = select(TABLES).where(TABLES.c.id == table_id)
        if is_locked:
            wanted = wanted.with_for_update(key_share=True)
        row = connection.execute(wanted).one_or_none()
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

    def count(self) -> int:
        """Return how many tables are registered."""
        wanted = select(func.count()).select_from(TABLES).where(TABLES.c.gone_at.is_(None))
        with self._database.transaction() as connection:
            return int(connection.execute(wanted).scalar_one())

    def change_overrides(
        self,
        table_id: int,
        *,
        given: Mapping[str, Any],
        removed: Collection[str] | None = (),
        by: str | None = None,
    ) -> dict[str, Any]:
        """Set and remove some settings of a table, and return all; None removes all others."""
        with self._database.transaction() as connection:
            self._required(connection, table_id)
            where = TABLES.c.id == table_id
            known = connection.execute(
                select(TABLES.c.overrides).where(where).with_for_update()
            ).scalar_one()
            kept = {} if removed is None else {k: v for k, v in known.items() if k not in removed}
            overrides = {**kept, **given}
            connection.execute(update(TABLES).where(where).values(overrides=overrides))
            now = self._database.now()
            record_event(connection, now, "table.set", table=table_id, by=by, overrides=overrides)
        return overrides

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

    def look_at_all(self) -> None:
        """Let every table be looked at next, because the policies have changed."""
        with self._database.transaction() as connection:
            connection.execute(
                update(TABLES)
                .where(TABLES.c.gone_at.is_(None))
                .values(look_at=self._database.now())
            )

    def look_again(self, table_id: int) -> None:
        """Let a table be looked at next, because more is known of it."""
        with self._database.transaction() as connection:
            self.change_in(connection, table_id, look_at=self._database.now())

    def looked_all(self, looks: Sequence[Mapping[str, Any]]) -> None:
        """Note of many tables that they were looked at and nothing is due, as one transaction."""
        if looks:
            with self._database.transaction() as connection:
                connection.execute(_looking(self._database.now()), looks)

    def locked(self, connection: Connection, url: str) -> tuple[RegisteredTable, float] | None:
        """Return a table that no other transaction changes until this one ends, and the time."""
        wanted = select(TABLES, self._database.now().label("now")).where(
            TABLES.c.url == url.rstrip("/"), TABLES.c.gone_at.is_(None)
        )
        # A new job of the table only needs its key to stay: it does not wait for this lock.
        row = connection.execute(wanted.with_for_update(key_share=True, of=TABLES)).one_or_none()
        if row is None:
            return None
        values = dict(row._mapping)  # noqa: SLF001  the documented way to a row's names
        now = float(values.pop("now"))
        return RegisteredTable(**values), now

    def change_in(self, connection: Connection, table_id: int, **values: Any) -> None:
        """Change the row of a table in a transaction that has begun."""
        connection.execute(update(TABLES).where(TABLES.c.id == table_id).values(**values))

    def looked(
        self, table_id: int, *, look_every: float, version_before: int | None = None, **values: Any
    ) -> None:
        """Note that a table was looked at, what was seen, and when to look again.

        `version_before` is the version that was known when the look began. If a notification came
        since then, the newer version counts, and the table is looked at again at once.
        """
        now = self._database.now()
        with self._database.transaction() as connection:
            table = self._required(connection, table_id, is_locked=True)
            look_at = now + look_every
            if table.version != version_before and "version" in values:
                look_at = now
                values["version"] = max(_known([table.version, values["version"]]), default=None)
                for count in ("commits_since", "bytes_since"):
                    values.pop(count, None)
            self.change_in(connection, table_id, look_every=look_every, look_at=look_at, **values)

    def failed_to_look(self, table_id: int, error: Mapping[str, Any], *, look_every: float) -> None:
        """Note that a table could not be read; the others are not affected."""
        failed = {"last_error": dict(error), "error_count": TABLES.c.error_count + 1}
        later = {"look_every": look_every, "look_at": self._database.now() + look_every}
        with self._database.transaction() as connection:
            connection.execute(
                update(TABLES).where(TABLES.c.id == table_id).values(**failed, **later)
            )

    def measured(self, table_id: int, version: int | None, values: Mapping[str, Any]) -> None:
        """Keep the numbers of an assessment, for the curve over time, and the latest score.

        Without a version the table could not be read: there are no numbers but the score.
        """
        with self._database.transaction() as connection:
            if version is not None:
                connection.execute(
                    MEASUREMENTS.insert().values(
                        table_id=table_id, at=self._database.now(), version=version, **values
                    )
                )
            if "health_score" in values:
                score = values["health_score"]
                connection.execute(
                    update(TABLES).where(TABLES.c.id == table_id).values(health_score=score)
                )

    # -- holds ------------------------------------------------------------------------------------

    def hold(
        self,
        table_id: int,
        verb: str,
        error: Mapping[str, Any],
        *,
        job_id: int,
        lakehand: str,
        policy: str = "",
    ) -> None:
        """Queue a verb of a table no more until something changes: retrying cannot cure it."""
        with self._database.transaction() as connection:
            table = self._required(connection, table_id)
            values = {
                "held_at": self._database.now(),
                "job_id": job_id,
                "error": dict(error),
                "table_version": table.version,
                "policy_digest": policy,
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

    def held_verbs(
        self, table_id: int, *, lakehand: str, policy: str = "", version: int | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the errors of verbs that are held.

        Another version of the table or of lakehand, or another policy, lifts a hold. `version` is
        one that was seen just now; without it, the one that is noted counts.
        """
        with self._database.reading() as connection:
            table = self._required(connection, table_id)
            seen = table.version if version is None else version
            return self.held_in(
                connection, table_id, version=seen, lakehand=lakehand, policy=policy
            )

    def held_in(
        self,
        connection: Connection,
        table_id: int,
        *,
        version: int | None,
        lakehand: str,
        policy: str = "",
    ) -> dict[str, dict[str, Any]]:
        """Return the errors of verbs that are held at a version, as `held_verbs` does."""
        held = select(HOLDS.c.verb, HOLDS.c.error).where(
            HOLDS.c.table_id == table_id,
            HOLDS.c.lakehand_version == lakehand,
            HOLDS.c.policy_digest == policy,
            HOLDS.c.table_version.is_not_distinct_from(version),
        )
        return {row.verb: row.error for row in connection.execute(held)}

    def with_holds(self) -> set[int]:
        """Return the tables of which a verb is held, or was: something may have changed since."""
        with self._database.reading() as connection:
            return set(connection.execute(select(HOLDS.c.table_id).distinct()).scalars())


def _is_known(found: FoundTable, row: Any) -> bool:
    if row is None:
        return False
    return row.format == found.format and (row.name is not None or found.name is None)


@functools.lru_cache(maxsize=64)
def _looking(now: Any) -> Any:
    return (
        update(TABLES)
        # A table of which a notification came since is looked at again.
        .where(
            TABLES.c.id == bindparam("table"),
            TABLES.c.look_at == bindparam("due_at"),
            TABLES.c.version.is_not_distinct_from(bindparam("version_before")),
            TABLES.c.commits_since == bindparam("commits_before"),
        )
        .values(
            look_at=now + bindparam("look_every", type_=Double),
            look_every=bindparam("look_every", type_=Double),
            version=bindparam("version"),
            commits_since=bindparam("commits_since"),
            bytes_since=bindparam("bytes_since"),
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
    is_removed, is_by_hand = TABLES.c.source == _REMOVED, new.excluded.source == _BY_HAND
    return new.on_conflict_do_update(
        index_elements=[TABLES.c.url],
        set_={
            "seen_at": now,
            # A source does not bring back what was removed by hand; adding it by hand does.
            "gone_at": case((and_(is_removed, ~is_by_hand), TABLES.c.gone_at), else_=None),
            "source": case((and_(is_removed, is_by_hand), _BY_HAND), else_=TABLES.c.source),
            "format": new.excluded.format,
            "name": case((TABLES.c.name.is_(None), new.excluded.name), else_=TABLES.c.name),
        },
    ).returning(TABLES)


_BY_URL = select(TABLES).where(TABLES.c.url == bindparam("url"))
_BY_URLS = select(TABLES.c.id, TABLES.c.url, TABLES.c.format, TABLES.c.name).where(
    TABLES.c.url.in_(bindparam("urls", expanding=True)), TABLES.c.gone_at.is_(None)
)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _ID_DIGITS


def _known(versions: list[int | None]) -> list[int]:
    return [version for version in versions if version is not None]


def _nearest(connection: Connection, name: str) -> str | None:
    """Return the name or URL of a table that looks most like a name."""
    rows = connection.execute(
        select(TABLES.c.name, TABLES.c.url).where(TABLES.c.gone_at.is_(None)).limit(_NAMES_TRIED)
    )
    names = [text for row in rows for text in row if text]
    found = difflib.get_close_matches(name, names, n=1)
    return found[0] if found else None


def _no_table(name: str, nearest: str | None = None) -> JobNotFoundError:
    hint = "lakehand tables list shows them, lakehand tables add registers one"
    if nearest is not None:
        hint = f"did you mean {nearest}? {hint}"
    return JobNotFoundError(f"there is no registered table {name!r}", hint=hint)


def _several(name: str, urls: Sequence[str]) -> JobNotFoundError:
    shown = ", ".join(urls[:5])
    message = f"{len(urls)} tables are named {name!r}: {shown}"
    return JobNotFoundError(message, hint="give the URL or the id of one of them")
