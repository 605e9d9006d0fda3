"""Lists of what the store holds, a page at a time, and counts of all: for pages and the API."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Double, and_, case, func, literal, or_, select, true

from lakehand.errors import ValidationError
from lakehand.service.job_states import ENDED
from lakehand.service.store.database_schema import (
    ATTEMPTS,
    EVENTS,
    HOLDS,
    JOBS,
    MEASUREMENTS,
    TABLES,
)
from lakehand.service.store.records import Job, format_time, record_json
from lakehand.service.store.table_registry import RegisteredTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.store.database import Database

TableSort = Literal["id", "name", "health", "bytes"]
#: Above every score: a table without one comes last.
_NO_SCORE = 101
#: A table below this score is unhealthy, below the other it is fair.
FAIR_SCORE, GOOD_SCORE = 60, 90
_DAY = 86_400.0
_MAX_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class TableFilter:
    """Which tables a list has."""

    #: Part of the name or the URL.
    search: str | None = None
    source: str | None = None
    policy: str | None = None
    format: str | None = None
    #: `paused`, `held`, `unreadable` or `gone`; None: all registered ones.
    state: str | None = None
    #: `good`, `fair`, `poor` or `unknown`.
    health: str | None = None
    sort: TableSort = "id"


@dataclass(frozen=True, kw_only=True, slots=True)
class Area:
    """A table as a part of the picture of all tables."""

    id: int
    name: str
    total_bytes: float
    health_score: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthDay:
    """The health of all tables on one day, by the last measurement of each."""

    #: Start of the day, in UTC.
    day_at: float
    #: Tables with a score of 90 and more.
    good: int
    #: Tables with a score from 60 to 89.
    fair: int
    #: Tables with a score below 60.
    poor: int

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Numbers of a table at one time."""

    #: When they were measured.
    measured_at: float
    #: Version of the table.
    version: int
    #: Files of the version.
    file_count: int | None
    #: Small ones among them.
    small_file_count: int | None
    #: Files that compaction would save.
    excess_file_count: int | None
    #: Size of all files.
    total_bytes: int | None
    #: Part of the rows in the files that is deleted.
    deleted_row_ratio: float | None
    #: From 0 to 100.
    health_score: int | None

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One attempt at a job."""

    #: Number of the claim.
    fence: int
    #: The worker.
    worker_id: str
    #: Ledgers that it began in the table.
    run_ids: list[str]
    #: When it began.
    started_at: float
    #: When it ended; null: it has not.
    ended_at: float | None
    #: How it ended.
    outcome: str | None
    #: Its error.
    error: dict[str, Any] | None
    #: What it has spent, by unit.
    spent: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened."""

    #: Number of the event.
    id: int
    #: When.
    at: float
    #: What, as `job.failed`.
    kind: str
    #: Number of the table; null if it is not about one.
    table_id: int | None
    #: Its name.
    table_name: str | None
    #: Number of the job; null if it is not about one.
    job_id: int | None
    #: Who did it; null: the service.
    by: str | None
    #: More about it.
    details: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {**record_json(self), "at": format_time(self.at)}


class Listings:
    """What pages and the API read of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- tables -----------------------------------------------------------------------------------

    def tables(
        self, wanted: TableFilter, *, limit: int, after: str | None = None
    ) -> tuple[list[RegisteredTable], str | None]:
        """Return one page of tables, and where the next one begins; None if there is none."""
        limit = min(limit, _MAX_LIMIT)
        key, is_falling = _sort_key(wanted.sort)
        order = key.desc() if is_falling else key.asc()
        query = select(TABLES, key.label("sort_key")).where(*self._conditions(wanted))
        if after is not None:
            value, last_id = _read_cursor(after, is_text=wanted.sort == "name")
            beyond = key < literal(value) if is_falling else key > literal(value)
            query = query.where(or_(beyond, and_(key == literal(value), TABLES.c.id > last_id)))
        query = query.order_by(order, TABLES.c.id).limit(limit + 1)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        columns = [column.name for column in TABLES.c]
        tables = [
            RegisteredTable(**{name: getattr(row, name) for name in columns})
            for row in rows[:limit]
        ]
        last = rows[limit - 1] if len(rows) > limit else None
        return tables, None if last is None else _cursor(last.sort_key, last.id)

    def count_tables(self, wanted: TableFilter) -> int:
        query = select(func.count()).select_from(TABLES).where(*self._conditions(wanted))
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def areas(self, wanted: TableFilter, *, limit: int) -> tuple[list[Area], float]:
        """Return the largest tables, and the bytes of all others."""
        size = _bytes()
        conditions = [*self._conditions(wanted), size > 0]
        largest = (
            select(TABLES.c.id, TABLES.c.name, TABLES.c.url, TABLES.c.health_score, size.label("b"))
            .where(*conditions)
            .order_by(size.desc(), TABLES.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(largest).all()
            total = connection.execute(select(func.sum(size)).where(*conditions)).scalar_one()
        areas = [
            Area(id=row.id, name=row.name or row.url, total_bytes=row.b, health_score=row[3])
            for row in rows
        ]
        return areas, max(0.0, float(total or 0) - sum(area.total_bytes for area in areas))

    def health_counts(self) -> dict[str, int]:
        """Return how many tables are good, fair, poor, and of unknown health."""
        bucket = _bucket(TABLES.c.health_score)
        query = select(bucket, func.count()).where(TABLES.c.gone_at.is_(None)).group_by(bucket)
        with self._database.reading() as connection:
            found = {row[0]: int(row[1]) for row in connection.execute(query)}
        return {name: found.get(name, 0) for name in ("good", "fair", "poor", "unknown")}

    def names_of(self, column: Literal["source", "policy", "format"]) -> list[str]:
        """Return the values of a column of tables, for a filter."""
        query = select(TABLES.c[column]).where(TABLES.c[column].is_not(None)).distinct()
        with self._database.reading() as connection:
            return sorted(connection.execute(query).scalars())

    def count_by_policy(self) -> dict[str, int]:
        """Return how many tables had each policy when they were looked at last."""
        query = select(TABLES.c.policy, func.count()).where(TABLES.c.gone_at.is_(None))
        with self._database.reading() as connection:
            rows = connection.execute(query.group_by(TABLES.c.policy))
            return {row[0]: int(row[1]) for row in rows if row[0] is not None}

    def _conditions(self, wanted: TableFilter) -> list[Any]:
        is_gone = TABLES.c.gone_at.is_not(None)
        conditions: list[Any] = [is_gone if wanted.state == "gone" else ~is_gone]
        columns = ("source", "policy", "format")
        given = {name: getattr(wanted, name) for name in columns if getattr(wanted, name)}
        conditions += [TABLES.c[name] == value for name, value in given.items()]
        if wanted.search:
            text = f"%{_escaped(wanted.search.lower())}%"
            named = [func.lower(TABLES.c[name]).like(text, escape="\\") for name in ("name", "url")]
            conditions.append(or_(*named))
        if wanted.health:
            conditions.append(_bucket(TABLES.c.health_score) == wanted.health)
        conditions.append(self._state_condition(wanted.state))
        return conditions

    def _state_condition(self, state: str | None) -> Any:
        if state == "paused":
            return TABLES.c.paused_until > self._database.now()
        if state == "unreadable":
            return TABLES.c.error_count > 0
        if state == "held":
            return TABLES.c.id.in_(select(HOLDS.c.table_id))
        return true()

    # -- over time --------------------------------------------------------------------------------

    def health_by_day(self, *, days: int = 14) -> list[HealthDay]:
        """Return the health of all tables on each of the last days that have measurements."""
        day = func.floor(MEASUREMENTS.c.at / _DAY, type_=Double)
        since = self._database.now() - days * _DAY
        last = (
            select(func.max(MEASUREMENTS.c.at).label("at"), MEASUREMENTS.c.table_id)
            .where(MEASUREMENTS.c.at >= since, MEASUREMENTS.c.health_score.is_not(None))
            .group_by(MEASUREMENTS.c.table_id, day)
            .subquery()
        )
        bucket = _bucket(MEASUREMENTS.c.health_score)
        same = and_(MEASUREMENTS.c.table_id == last.c.table_id, MEASUREMENTS.c.at == last.c.at)
        query = (
            select(day.label("day"), bucket.label("bucket"), func.count().label("count"))
            .join_from(MEASUREMENTS, last, same)
            .group_by(day, bucket)
        )
        counts: dict[float, dict[str, int]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(query):
                counts.setdefault(float(row.day), {})[row.bucket] = int(row[2])
        return [
            HealthDay(day_at=at * _DAY, **{one: found.get(one, 0) for one in _BUCKETS})
            for at, found in sorted(counts.items())
        ]

    def measurements(self, table_id: int, *, limit: int = 500) -> list[Measurement]:
        """Return the newest measurements of a table, the oldest of them first."""
        columns = [column for column in MEASUREMENTS.c if column.name not in {"table_id", "at"}]
        query = (
            select(MEASUREMENTS.c.at.label("measured_at"), *columns)
            .where(MEASUREMENTS.c.table_id == table_id)
            .order_by(MEASUREMENTS.c.at.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return [Measurement(**row._mapping) for row in reversed(rows)]  # noqa: SLF001

    # -- jobs and events --------------------------------------------------------------------------

    def jobs_in_turn(self, *, limit: int = 100) -> list[Job]:
        """Return queued jobs, the one that starts next first."""
        names = TABLES.c.url.label("table_url"), TABLES.c.name.label("table_name")
        query = select(JOBS, *names).join(TABLES).where(JOBS.c.state == "queued")
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(JOBS.c.rank_at, JOBS.c.id).limit(limit))
            return [Job.of(row) for row in rows]

    def backlog_core_seconds(self) -> float | None:
        """Return the processor time that queued jobs are expected to take; None if unknown."""
        expected = JOBS.c.expected["core_seconds"].as_float()
        query = select(func.sum(expected)).where(JOBS.c.state == "queued")
        with self._database.reading() as connection:
            found = connection.execute(query).scalar_one()
        return None if found is None else float(found)

    def attempts(self, job_id: int) -> list[Attempt]:
        """Return the attempts at a job, the oldest first."""
        names = list(Attempt.__slots__)
        query = select(*(ATTEMPTS.c[name] for name in names)).where(ATTEMPTS.c.job_id == job_id)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(ATTEMPTS.c.fence)).all()
        return [Attempt(**row._mapping) for row in rows]  # noqa: SLF001

    def events(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        kinds: Sequence[str] = (),
        table_id: int | None = None,
        job_id: int | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return events: those after a number, the oldest first, else the newest first."""
        names = ("id", "at", "kind", "table_id", "job_id", "by", "details")
        query = select(*(EVENTS.c[name] for name in names), TABLES.c.name.label("table_name"))
        query = query.join_from(EVENTS, TABLES, EVENTS.c.table_id == TABLES.c.id, isouter=True)
        if kinds:
            patterns = [_kind_condition(kind) for kind in kinds]
            query = query.where(or_(*patterns))
        for column, value in ((EVENTS.c.table_id, table_id), (EVENTS.c.job_id, job_id)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(EVENTS.c.id < before)
        if after is not None:
            query = query.where(EVENTS.c.id > after).order_by(EVENTS.c.id)
        else:
            query = query.order_by(EVENTS.c.id.desc())
        with self._database.reading() as connection:
            rows = connection.execute(query.limit(min(limit, _MAX_LIMIT)))
            return [Event(**row._mapping) for row in rows]  # noqa: SLF001

    def last_event_id(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute(select(func.max(EVENTS.c.id))).scalar_one() or 0)

    def count_events(self, *, since: float) -> Mapping[str, int]:
        """Return how many events of each kind there were since a time."""
        query = select(EVENTS.c.kind, func.count()).where(EVENTS.c.at >= since)
        with self._database.reading() as connection:
            return {
                row[0]: int(row[1]) for row in connection.execute(query.group_by(EVENTS.c.kind))
            }

    def ended_reports(self, *, since: float, limit: int = 2000) -> list[dict[str, Any]]:
        """Return the reports of jobs that have ended since a time, the newest first."""
        query = (
            select(JOBS.c.report)
            .where(JOBS.c.state.in_(ENDED), JOBS.c.ended_at >= since, JOBS.c.report.is_not(None))
            .order_by(JOBS.c.id.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())


_BUCKETS = ("good", "fair", "poor")


def health_bucket(score: int | None) -> str:
    """Return the word for a score.

    >>> health_bucket(95), health_bucket(None)
    ('good', 'unknown')
    """
    if score is None:
        return "unknown"
    if score >= GOOD_SCORE:
        return "good"
    return "fair" if score >= FAIR_SCORE else "poor"


def _bucket(score: Any) -> Any:
    return case(
        (score.is_(None), "unknown"),
        (score >= GOOD_SCORE, "good"),
        (score >= FAIR_SCORE, "fair"),
        else_="poor",
    )


def _bytes() -> Any:
    return func.coalesce(TABLES.c.summary["total_bytes"].as_float(), 0.0)


def _sort_key(sort: TableSort) -> tuple[Any, bool]:
    """Return what tables are sorted by, and whether the largest is first."""
    if sort == "name":
        return func.lower(func.coalesce(TABLES.c.name, TABLES.c.url)), False
    if sort == "health":
        return func.coalesce(TABLES.c.health_score, _NO_SCORE), False
    if sort == "bytes":
        return _bytes(), True
    return TABLES.c.id, False


def _cursor(value: Any, last_id: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, last_id]).encode()).decode().rstrip("=")


def _read_cursor(given: str, *, is_text: bool) -> tuple[Any, int]:
    try:
        padded = given + "=" * (-len(given) % 4)
        value, last_id = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise ValidationError("`after` is not from a list", field="after") from error
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (isinstance(value, str) if is_text else is_number) or not _is_id(last_id):
        raise ValidationError("`after` is not from a list sorted like this one", field="after")
    return value, last_id


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _kind_condition(kind: str) -> Any:
    if kind.endswith(".*"):
        return EVENTS.c.kind.like(f"{_escaped(kind[:-1])}%", escape="\\")
    return EVENTS.c.kind == kind
