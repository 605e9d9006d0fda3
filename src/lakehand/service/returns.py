"""What jobs have cost, and what they were worth: the return on each.

The benefit of a job is measured: the files and bytes that it removed, which readers no longer open
and scan, for as long as that lasted, which is until the next job of the table had to do it again.
Three negative returns in a row raise the thresholds of the table.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from lakehand.service.scores import OPEN_SECONDS, READS_PER_DAY, SCAN_BYTES_PER_SECOND
from lakehand.service.store.database_schema import ATTEMPTS, JOBS, TABLES
from lakehand.service.store.records import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakehand.service.config_sections import CostsSection
    from lakehand.service.store.database import Database

#: The newest attempts at a table that are looked at, and those at all tables.
_ATTEMPTS, _MOST_ATTEMPTS = 12, 2000
#: This many negative returns in a row double the thresholds; and at most by how much.
NEGATIVE_RETURNS, MOST_RAISED = 3, 8.0
_DAY, _GIB, _MONTH_DAYS = 86_400.0, 2**30, 30.0
#: What a job frees stays freed: its benefit is counted for this long.
_LONGEST_DAYS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobReturn:
    """What a job has cost, and what it was worth until now or until the next job."""

    #: Number of the job.
    job: int
    #: What it ran.
    verb: str
    #: When it ended.
    ended_at: float
    #: Processor time.
    core_seconds: float
    #: Bytes that it rewrote.
    bytes: float
    #: Requests to the store, estimated.
    requests: float
    #: Cost at the prices of `[costs]`.
    cost: float
    #: Files that the table has fewer after it.
    files_saved: int
    #: Bytes that the table has fewer, or that a vacuum has freed.
    bytes_saved: int
    #: Days for which that was of use so far.
    days: float
    #: Value of that in the same money: processor time of readers, and storage.
    benefit: float
    #: Whether the benefit still grows: no further job of the table has run.
    is_open: bool

    @property
    def value(self) -> float:
        """Benefit less cost."""
        return self.benefit - self.cost

    def to_json(self) -> dict[str, Any]:
        """Return the return as a JSON document."""
        shown = {**asdict(self), "ended_at": format_time(self.ended_at)}
        return {**shown, "return": self.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReturn:
    """What the jobs of a table have cost and were worth in some days."""

    #: Number of the table; null: all tables together.
    table_id: int | None
    #: Its name.
    table_name: str | None
    #: Jobs that changed something.
    jobs: int
    #: Processor time.
    core_seconds: float
    #: Bytes that were rewritten.
    bytes: float
    #: Cost at the prices of `[costs]`.
    cost: float
    #: Files that the jobs removed.
    files_saved: int
    #: Bytes that they removed.
    bytes_saved: int
    #: Value of that, see the return of a job.
    benefit: float

    @property
    def value(self) -> float:
        """Benefit less cost."""
        return self.benefit - self.cost

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "return": self.value}

    @classmethod
    def of(cls, returns: Sequence[JobReturn], table: tuple[int, str] | None = None) -> TableReturn:
        """Add up the returns of jobs."""
        table_id, name = table or (None, None)
        return cls(
            table_id=table_id,
            table_name=name,
            jobs=len(returns),
            core_seconds=sum(one.core_seconds for one in returns),
            bytes=sum(one.bytes for one in returns),
            cost=sum(one.cost for one in returns),
            files_saved=sum(one.files_saved for one in returns),
            bytes_saved=sum(one.bytes_saved for one in returns),
            benefit=sum(one.benefit for one in returns),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnSummary:
    """What the jobs of all tables have cost and were worth."""

    #: Days that are looked at.
    days: int
    #: All tables together.
    total: TableReturn
    #: The tables that cost most, the most expensive first.
    tables: tuple[TableReturn, ...]
    #: Whether there were more jobs than are looked at.
    truncated: bool


def read_return_summary(
    database: Database,
    costs: CostsSection,
    *,
    importance_of: Callable[[str, str | None], float] = lambda _url, _name: 1.0,
    days: int = 30,
    tables: int = 50,
) -> ReturnSummary:
    """Add up what the rewrites of the last days were worth, by table.

    `importance_of` says by URL and name of a table how often it is read, relative to others.
    """
    now = database.time()
    wanted = (
        _ended_rewrites()
        .add_columns(ATTEMPTS.c.table_id, TABLES.c.url, TABLES.c.name)
        .join(TABLES, TABLES.c.id == ATTEMPTS.c.table_id)
        .where(ATTEMPTS.c.ended_at >= now - days * _DAY)
        .order_by(ATTEMPTS.c.started_at.desc())
        .limit(_MOST_ATTEMPTS)
    )
    with database.reading() as connection:
        rows = [row._asdict() for row in connection.execute(wanted)]
    by_table: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_table.setdefault(row["table_id"], []).append(row)
    found = {}
    for table_id, own in by_table.items():
        url, name = own[0]["url"], own[0]["name"]
        reads_per_day = READS_PER_DAY * importance_of(url, name)
        found[table_id, name or url] = list(returns_of(own, costs, now, reads_per_day))
    summed = (TableReturn.of(returns, table) for table, returns in found.items())
    dearest = sorted(summed, key=lambda one: (-one.cost, one.table_id))
    return ReturnSummary(
        days=days,
        total=TableReturn.of([one for returns in found.values() for one in returns]),
        tables=tuple(dearest[:tables]),
        truncated=len(rows) == _MOST_ATTEMPTS,
    )


def _ended_rewrites() -> Any:
    """Return the query for attempts at rewrites that have changed a table."""
    return (
        select(
            ATTEMPTS.c.job_id,
            ATTEMPTS.c.started_at,
            ATTEMPTS.c.ended_at,
            ATTEMPTS.c.report,
            ATTEMPTS.c.spent,
            JOBS.c.verb,
        )
        .join(JOBS, JOBS.c.id == ATTEMPTS.c.job_id)
        .where(JOBS.c.lane == "rewrite", ATTEMPTS.c.outcome.in_(("committed", "stopped_early")))
    )


def read_returns(
    database: Database, table_id: int, costs: CostsSection, *, importance: float = 1.0
) -> list[JobReturn]:
    """Return what the last rewrites of a table were worth, the newest first.

    `importance` says how often it is read, relative to others.
    """
    ended = (
        _ended_rewrites()
        .where(ATTEMPTS.c.table_id == table_id)
        .order_by(ATTEMPTS.c.started_at.desc())
        .limit(_ATTEMPTS)
    )
    with database.reading() as connection:
        rows = [row._asdict() for row in connection.execute(ended)]
    return list(returns_of(rows, costs, database.time(), READS_PER_DAY * importance))


def returns_of(
    rows: Sequence[Mapping[str, Any]], costs: CostsSection, now: float, reads_per_day: float
) -> Iterator[JobReturn]:
    """Return what the jobs of some attempts were worth, the newest first as they are given.

    Slices of one job count together. Without the job, the next one would have done its work: what
    it was worth is what readers saved until then.
    """
    next_at = now
    for number, (job, found) in enumerate(itertools.groupby(rows, key=lambda row: row["job_id"])):
        attempts = list(found)
        ended_at = attempts[0]["ended_at"]
        days = min(_LONGEST_DAYS, max(0.0, next_at - ended_at) / _DAY)
        saved = [saved_by(row["report"] or {}) for row in attempts]
        files, freed = (sum(one[part] for one in saved) for part in (0, 1))
        seconds = reads_per_day * (files * OPEN_SECONDS + max(0, freed) / SCAN_BYTES_PER_SECOND)
        stored = max(0, freed) / _GIB * costs.gib_month / _MONTH_DAYS
        yield JobReturn(
            job=job,
            verb=attempts[0]["verb"],
            ended_at=ended_at,
            **_spent(attempts),
            files_saved=files,
            bytes_saved=freed,
            days=days,
            benefit=days * (seconds * costs.core_hour / 3600.0 + stored),
            is_open=number == 0,
        )
        next_at = attempts[-1]["started_at"]


def _spent(attempts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = ("core_seconds", "bytes", "requests", "cost")
    return {
        name: sum(float((row["spent"] or {}).get(name, 0.0)) for row in attempts) for name in names
    }


def saved_by(report: Mapping[str, Any]) -> tuple[int, int]:
    """Return by how many files and bytes a job made its table smaller.

    >>> compacted = {"files_before": 9, "files_after": 2, "bytes_before": 50, "bytes_after": 40}
    >>> saved_by({"steps": [{"report": compacted}, {"report": {"bytes_freed": 5}}]})
    (7, 15)
    """
    parts = [report, *(step.get("report") or {} for step in report.get("steps") or ())]
    files = sum(
        part["files_before"] - part["files_after"]
        for part in parts
        if isinstance(part.get("files_before"), int) and isinstance(part.get("files_after"), int)
    )
    freed = sum(
        part["bytes_before"] - part["bytes_after"]
        for part in parts
        if isinstance(part.get("bytes_before"), int) and isinstance(part.get("bytes_after"), int)
    )
    vacuumed = sum(int(part.get("bytes_freed") or 0) for part in parts)
    return files, freed + vacuumed


def raised_by(returns: Sequence[JobReturn]) -> float:
    """Return by how much the thresholds of a table are raised, from its returns, newest first.

    A return that is still open counts only if it is positive already: its benefit may still come.
    """
    negative = 0
    for one in returns:
        if one.value >= 0:
            break
        negative += not one.is_open
    return min(MOST_RAISED, 2.0 ** (negative // NEGATIVE_RETURNS))
