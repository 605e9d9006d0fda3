"""Summaries of tables, and what is learned from the jobs that ended."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.model.table_summary import NO_FILES, TableSummary
from lakehand.service.scores import Calibration, calibrated_factor
from lakehand.service.store.database_schema import (
    CALIBRATIONS,
    JOBS,
    MEASUREMENTS,
    SUMMARIES,
    TABLES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from lakehand.service.scores import TableNumbers
    from lakehand.service.store.database import Database
    from lakehand.service.store.records import AttemptEnd

#: The id of all tables together.
_ALL_TABLES = 0
#: Weight of the newest rewrite in the share of lost groups.
_NEWEST_WEIGHT = 0.2
#: Numbers that are kept for the curve over time, at most this often.
_MEASURED = (
    "file_count",
    "small_file_count",
    "excess_file_count",
    "total_bytes",
    "deleted_row_ratio",
)
_MEASURED_EVERY = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSummary:
    """The summary of a table, and how far its changes have been dealt with."""

    summary: TableSummary | None = None
    saved_at: float = 0.0
    #: Of a table with very many files, whose numbers are not kept.
    assessment: Mapping[str, Any] | None = None
    vacuumed_at: float | None = None
    vacuumed_file_count: int = 0
    vacuumed_bytes: int = 0
    cleaned_at: float | None = None
    cleaned_commits: int = 0
    error: Mapping[str, Any] | None = None
    #: By step: actual divided by forecast processor time.
    factors: Mapping[str, float] = field(default_factory=dict)
    lost_share: float = 0.0

    def since(self, numbers: TableNumbers, summary: TableSummary, now: float) -> TableNumbers:
        """Return `numbers` with what has come since the last vacuum and cleanup of the log."""
        return replace(
            numbers,
            removed_file_count=max(0, summary.removed_file_count - self.vacuumed_file_count),
            removed_bytes=max(0, summary.removed_bytes - self.vacuumed_bytes),
            seconds_since_vacuum=_age(self.vacuumed_at, now),
            seconds_since_cleanup=_age(self.cleaned_at, now),
            commits_since_cleanup=max(0, summary.commits_applied - self.cleaned_commits),
        )


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSummary:
    """A new summary of a table, and what is shown of it."""

    table_id: int
    summary: TableSummary
    #: For the row of the table: a few numbers.
    shown: Mapping[str, Any]
    health_score: int
    #: Of a table with very many files, see `StoredSummary`.
    assessment: Mapping[str, Any] | None = None
    is_measured: bool = False


#: Built once: to build a statement takes longer than to run it.
_OF_TABLE = select(SUMMARIES).where(SUMMARIES.c.table_id == bindparam("table"))
_LEARNED = select(CALIBRATIONS).where(
    or_(CALIBRATIONS.c.table_id == bindparam("table"), CALIBRATIONS.c.table_id == _ALL_TABLES)
)


class SummaryStore:
    """The summaries of a job store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, table_id: int) -> StoredSummary:
        """Return what is stored of a table; one that cannot be read counts as none."""
        with self._database.reading() as connection:
            row = connection.execute(_OF_TABLE, {"table": table_id}).one_or_none()
            calibrations = connection.execute(_LEARNED, {"table": table_id}).all()
        own = {one.step: one for one in calibrations if one.table_id == table_id}
        common = {one.step: one for one in calibrations if one.table_id == _ALL_TABLES}
        factors = {
            step: calibrated_factor(_calibration(own.get(step)), _calibration(common.get(step)))
            for step in own.keys() | common.keys()
        }
        lost = own["compact"].lost_share if "compact" in own else 0.0
        if row is None:
            return StoredSummary(factors=factors, lost_share=lost)
        return StoredSummary(
            summary=_read(row.document, row.files),
            saved_at=row.saved_at,
            assessment=row.assessment,
            vacuumed_at=row.vacuumed_at,
            vacuumed_file_count=row.vacuumed_file_count,
            vacuumed_bytes=row.vacuumed_bytes,
            cleaned_at=row.cleaned_at,
            cleaned_commits=row.cleaned_commits,
            error=row.error,
            factors=factors,
            lost_share=lost,
        )

    def save_all(self, saved: Sequence[SavedSummary]) -> None:
        """Replace the summaries of some tables, as one transaction."""
        if not saved:
            return
        now = self._database.now()
        with self._database.transaction() as connection:
            connection.execute(
                _saving(now, self._database.is_sqlite), [_summary_values(one) for one in saved]
            )
            connection.execute(_SHOWING, [_shown_values(one) for one in saved])
            for one in saved:
                if one.is_measured:
                    connection.execute(
                        MEASUREMENTS.insert().values(at=now, **_measured_values(one))
                    )

    def save_read(
        self, table_id: int, summary: TableSummary, assessment: Mapping[str, Any] | None
    ) -> None:
        """Replace the summary of a table that was read as a whole."""
        with self._database.transaction() as connection:
            now = self._database.now()
            values = [_row(table_id, summary, assessment)]
            connection.execute(_saving(now, self._database.is_sqlite), values)

    def failed(self, table_id: int, version: int, error: Mapping[str, Any]) -> None:
        """Note that a table cannot be read as a whole at a version."""
        empty = TableSummary(version=version, mark="")
        values = {**_row(table_id, empty, None), "error": dict(error)}
        with self._database.transaction() as connection:
            now = self._database.now()
            connection.execute(_saving(now, self._database.is_sqlite), [values])

    def calibrations(self) -> dict[str, Calibration]:
        """Return how forecasts compare with what was taken, of all tables, by step."""
        wanted = select(CALIBRATIONS).where(CALIBRATIONS.c.table_id == _ALL_TABLES)
        with self._database.reading() as connection:
            rows = connection.execute(wanted).all()
        return {row.step: found for row in rows if (found := _calibration(row)) is not None}


def _read(document: Mapping[str, Any], files: bytes | None) -> TableSummary | None:
    try:
        # Of a table with very many files, or one that could not be read, no files are kept.
        return TableSummary.from_json(document, files or NO_FILES.encode())
    except ValueError:
        # Of another version of lakehand: the table is read as a whole.
        return None


def _calibration(row: Any) -> Calibration | None:
    if row is None:
        return None
    return Calibration(factor=row.factor, error=row.error, count=row.count)


def _row(table_id: int, summary: TableSummary, assessment: Any) -> dict[str, Any]:
    has_files = bool(summary.mark)
    return {
        "table_id": table_id,
        "version": summary.version,
        "document": summary.to_json(),
        "files": summary.files.encode() if has_files else None,
        "assessment": assessment,
        "commits_applied": summary.commits_applied,
        "removed_file_count": summary.removed_file_count,
        "removed_bytes": summary.removed_bytes,
        "error": None,
    }


def _summary_values(saved: SavedSummary) -> dict[str, Any]:
    return _row(saved.table_id, saved.summary, saved.assessment)


def _shown_values(saved: SavedSummary) -> dict[str, Any]:
    return {"table": saved.table_id, "shown": dict(saved.shown), "score": saved.health_score}


def _measured_values(saved: SavedSummary) -> dict[str, Any]:
    numbers = {name: saved.shown[name] for name in _MEASURED}
    common = {"table_id": saved.table_id, "version": saved.summary.version}
    return {**common, **numbers, "health_score": saved.health_score}


def is_measured(shown: Mapping[str, Any] | None, now: float) -> bool:
    """Say whether the numbers of a table belong on its curve: once an hour."""
    measured_at = float((shown or {}).get("measured_at", 0.0))
    return abs(now - measured_at) >= _MEASURED_EVERY


_SHOWING = (
    update(TABLES)
    .where(TABLES.c.id == bindparam("table"))
    .values(summary=bindparam("shown"), health_score=bindparam("score"))
)


@functools.lru_cache(maxsize=64)
def _saving(now: Any, is_sqlite: bool) -> Any:  # noqa: FBT001  cached by position
    names = list(_row(0, TableSummary(version=0, mark=""), None))
    new = (sqlite if is_sqlite else postgresql).insert(SUMMARIES)
    given = new.excluded
    counted = {"removed_file_count", "removed_bytes", "commits_applied"}
    changed: dict[str, Any] = {name: given[name] for name in names if name not in counted}
    # Of a table that could not be read, what was removed before is not forgotten.
    changed |= {
        name: case((given.error.is_(None), given[name]), else_=SUMMARIES.c[name])
        for name in counted
    }
    removed_at = case(
        (given.removed_file_count > SUMMARIES.c.removed_file_count, now),
        else_=SUMMARIES.c.removed_at,
    )
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    return new.values(saved_at=now, **values).on_conflict_do_update(
        index_elements=[SUMMARIES.c.table_id],
        set_={**changed, "saved_at": now, "removed_at": removed_at},
    )


# -- what ended jobs tell ---------------------------------------------------------------------


def learn_from_job(
    connection: Connection, now: Any, job_id: int, end: AttemptEnd, *, is_sqlite: bool
) -> None:
    """Note what the end of a job tells: when its table was vacuumed, and how good forecasts are."""
    if end.report is None:
        return
    wanted = select(JOBS.c.table_id, JOBS.c.verb, JOBS.c.expected).where(JOBS.c.id == job_id)
    job = connection.execute(wanted).one_or_none()
    if job is None:
        return
    reports = dict(_step_reports(job.verb, end.report))
    _note_steps(connection, now, job.table_id, reports)
    learning = _Learning(connection, now, job.table_id, is_sqlite=is_sqlite)
    forecasts = job.expected.get("steps", {})
    for step, seconds in _core_seconds(reports, end.spent.get("core_seconds", 0.0)).items():
        if step in forecasts and reports[step].get("outcome") == "committed":
            forecast = forecasts[step].get("forecast_core_seconds", 0.0)
            learning.compare(step, forecast, seconds)
    learning.note_lost(reports.get("compact"))


def _step_reports(verb: str, report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the reports of the steps that ran, by step."""
    if verb != "maintain":
        yield verb, report
        return
    for step in report.get("steps", ()):
        if step.get("report") is not None and step.get("outcome") != "failed":
            yield step["step"], step["report"]


def _core_seconds(reports: Mapping[str, Mapping[str, Any]], total: float) -> dict[str, float]:
    """Divide the processor time of a job among its steps, by the time that each took."""
    taken = {step: float(report.get("duration_ms") or 0.0) for step, report in reports.items()}
    whole = sum(taken.values())
    return {step: total * part / whole for step, part in taken.items()} if whole else {}


def _note_steps(
    connection: Connection, now: Any, table_id: int, reports: Mapping[str, Mapping[str, Any]]
) -> None:
    values: dict[str, Any] = {}
    vacuum = reports.get("vacuum")
    if vacuum is not None and not vacuum.get("dry_run"):
        values["vacuumed_at"] = now
        if not (vacuum.get("files_waiting") or vacuum.get("files_quarantined")):
            # What was removed within the retention is left to the next vacuum.
            oldest = now - float(vacuum.get("retention_seconds") or 0.0)
            is_freed = SUMMARIES.c.removed_at <= oldest
            for name, counter in (
                ("vacuumed_file_count", SUMMARIES.c.removed_file_count),
                ("vacuumed_bytes", SUMMARIES.c.removed_bytes),
            ):
                values[name] = case((is_freed, counter), else_=SUMMARIES.c[name])
    if "clean_logs" in reports:
        values |= {"cleaned_at": now, "cleaned_commits": SUMMARIES.c.commits_applied}
    if values:
        connection.execute(
            update(SUMMARIES).where(SUMMARIES.c.table_id == table_id).values(**values)
        )


class _Learning:
    """Compares forecasts with actuals, for one table and for all."""

    def __init__(self, connection: Connection, now: Any, table_id: int, *, is_sqlite: bool) -> None:
        self._connection, self._now, self._table_id = connection, now, table_id
        self._insert = (sqlite if is_sqlite else postgresql).insert

    def compare(self, step: str, forecast: float, actual: float) -> None:
        for table_id in (self._table_id, _ALL_TABLES):
            known = self._known(table_id, step) or Calibration()
            after = known.after(forecast=forecast, actual=actual)
            values = {"factor": after.factor, "error": after.error, "count": after.count}
            self._put(table_id, step, values)

    def note_lost(self, report: Mapping[str, Any] | None) -> None:
        """Note which share of the groups of a rewrite was lost to concurrent writers."""
        groups = (report or {}).get("groups") or {}
        planned, dropped = groups.get("planned") or 0, groups.get("dropped") or 0
        if not planned:
            return
        share = CALIBRATIONS.c.lost_share * (1 - _NEWEST_WEIGHT)
        share += _NEWEST_WEIGHT * dropped / planned
        self._put(self._table_id, "compact", {"lost_share": share})

    def _known(self, table_id: int, step: str) -> Calibration | None:
        where = (CALIBRATIONS.c.table_id == table_id, CALIBRATIONS.c.step == step)
        return _calibration(self._connection.execute(select(CALIBRATIONS).where(*where)).first())

    def _put(self, table_id: int, step: str, values: Mapping[str, Any]) -> None:
        defaults = {"factor": 1.0, "error": 0.0, "count": 0}
        first = {**defaults, **{k: v for k, v in values.items() if k != "lost_share"}}
        new = self._insert(CALIBRATIONS).values(
            table_id=table_id, step=step, changed_at=self._now, **first
        )
        self._connection.execute(
            new.on_conflict_do_update(
                index_elements=[CALIBRATIONS.c.table_id, CALIBRATIONS.c.step],
                set_={**values, "changed_at": self._now},
            )
        )
