"""The metrics of the service: what each means, counters in the store, and gauges read from it.

A counter is the sum of its rows. An increment is one row, written in the transaction of what it
counts: it is exact after a crash, and two jobs that end at the same time do not wait for each
other. Counters do not shrink when history is deleted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import and_, case, delete, exists, func, insert, literal, or_, select

from lakehand.service.run_metrics import Increment
from lakehand.service.store.database_schema import (
    BUDGETS,
    HOLDS,
    JOBS,
    LEASES,
    MEASUREMENTS,
    METRIC_INCREMENTS,
    OUTBOX,
    POOLS,
    SERVICE,
    TABLES,
    WORKERS,
)
from lakehand.service.store.job_statements import QUEUED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy import Connection

    from lakehand.service.store.database import Database

#: The value of one series.
Reading = Increment
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric; in an exposition its name has the prefix `lakehand_`, a counter's ends `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    #: Whether it has one series per table, and `[metrics] per_table` says of which.
    per_table: bool = False

    @property
    def full_name(self) -> str:
        """The name that queries use.

        >>> MetricFamily("files_added", "counter", "Files added.").full_name
        'lakehand_files_added_total'
        """
        return f"lakehand_{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, help: str, *labels: str) -> MetricFamily:  # noqa: A002  Prometheus' word
    return MetricFamily(name, "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> MetricFamily:  # noqa: A002  Prometheus' word
    return MetricFamily(name, "gauge", help, labels)


def _of_table(name: str, help: str) -> MetricFamily:  # noqa: A002  Prometheus' word
    return MetricFamily(name, "gauge", help, ("table",), per_table=True)


#: In the order of the reference.
FAMILIES: tuple[MetricFamily, ...] = (
    # Jobs
    _gauge("jobs", "Jobs that are queued or running.", "state", "verb", "pool"),
    _gauge("jobs_waiting", "Queued jobs by what they wait for.", "waits_for"),
    _gauge("oldest_queued_seconds", "How long the oldest job that may start has waited."),
    MetricFamily(
        "job_wait_seconds",
        "histogram",
        "Time from when a job may start until it does; counted at the end of the attempt.",
        ("verb",),
    ),
    MetricFamily(
        "job_duration_seconds",
        "histogram",
        "Duration of attempts at jobs.",
        ("verb", "engine", "outcome"),
    ),
    _counter("jobs_ended", "Jobs that have ended.", "verb", "outcome", "error_code"),
    _counter("job_attempts", "Attempts at jobs that have ended.", "verb", "outcome"),
    _counter("leases_lost", "Attempts whose worker died, or was silent for a lease."),
    # Work
    _counter("operations", "Operations on tables, steps of maintain too.", "verb", "outcome"),
    _counter("operation_seconds", "Duration of operations.", "verb"),
    _counter("files_removed", "Files that rewrites have replaced.", "verb"),
    _counter("files_added", "Files that rewrites have added.", "verb"),
    _counter("bytes_rewritten", "Size of the files that rewrites have replaced.", "verb"),
    _counter("bytes_written", "Size of the files that rewrites have added.", "verb"),
    _counter("files_deleted", "Files deleted from storage.", "verb"),
    _counter("bytes_freed", "Size of the files deleted from storage.", "verb"),
    _counter("rows_proved", "Rows proved equal before a commit.", "verb"),
    _counter("proof_failures", "Attempts that ended because a proof failed.", "verb"),
    _counter("commit_conflicts", "Commit attempts lost to other writers.", "verb"),
    _counter("groups_lost", "Rewritten groups of files dropped because of other writers.", "verb"),
    _counter("core_seconds", "Processor time of jobs.", "verb", "engine"),
    _counter("cost", "Cost of jobs, in the currency of the configuration.", "verb"),
    # Tables
    _gauge("tables", "Tables: ok, paused, held, unreadable.", "source", "state"),
    _gauge("tables_unhealthy", "Tables with a health score below `unhealthy_below`."),
    _gauge("tables_held", "Tables of which a verb failed in a way that no retry cures."),
    _gauge("assessment_lag_seconds", "How late the most overdue poll of a table is."),
    _counter("table_looks", "Polls of tables for new commits.", "result"),
    _counter("discoveries", "Listings of sources.", "source", "outcome"),
    _counter("discovery_seconds", "Duration of listings of sources.", "source"),
    # The service
    _gauge("workers", "Workers that are alive: running or draining.", "state"),
    _gauge("worker_slots", "Slots of the workers that are alive: busy or free.", "state"),
    _gauge("scheduler_is_leader", "1 while a process schedules jobs, otherwise 0."),
    _gauge("service_paused", "1 while the service is paused, otherwise 0."),
    _gauge("budget_allowed", "What may be spent today.", "scope", "unit"),
    _gauge("budget_reserved", "What running jobs have reserved of it.", "scope", "unit"),
    _gauge("budget_spent", "What ended jobs have spent of it.", "scope", "unit"),
    _counter("notifications", "Notifications of commits by their effect.", "effect"),
    _counter("webhook_deliveries", "Calls of hooks: sent, failed or dropped.", "outcome"),
    _gauge("webhook_deliveries_waiting", "Events that hooks are still to be told of."),
    _counter("config_reloads", "Reloads of the configuration: accepted or refused.", "outcome"),
    _gauge("build_info", "1; its label is the version.", "version"),
    # Single tables
    _of_table("table_health_score", "Health score, 0 to 100."),
    _of_table("table_files", "Files at the last measurement."),
    _of_table("table_small_files", "Small files at the last measurement."),
    _of_table("table_bytes", "Size at the last measurement."),
    _of_table("table_commits_since_maintenance", "Commits since maintenance was last requested."),
    _of_table("table_seconds_since_maintenance", "Time since a job of the table succeeded."),
    _of_table("table_held", "1 while a verb of the table is held."),
    _of_table("table_unreadable", "1 while the table cannot be read."),
)


# -- counters ------------------------------------------------------------------------------------

#: Rows that are merged at a time, and how many make it worth while.
_MERGED_AT_ONCE, _WORTH_MERGING = 5000, 500
#: Upper bounds of the buckets of histograms, in seconds.
BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
_NEW = insert(METRIC_INCREMENTS)


def observe(metric: str, labels: Mapping[str, str], seconds: float) -> tuple[Increment, Increment]:
    """Return what an observed duration adds to a histogram.

    >>> [one.labels for one in observe("wait", {}, 7.0)]
    [{'le': '15'}, {}]
    """
    bound = next((f"{bucket:g}" for bucket in BUCKETS if seconds <= bucket), "+Inf")
    return (
        Increment(f"{metric}_bucket", {**labels, "le": bound}),
        Increment(f"{metric}_sum", labels, max(0.0, seconds)),
    )


def count(connection: Connection, *increments: Increment) -> None:
    """Add to counters, in the transaction of what is counted."""
    rows = [
        {"metric": one.metric, "labels": _text(one.labels), "value": one.value}
        for one in increments
        if one.value or one.metric.endswith("_sum")
    ]
    if rows:
        connection.execute(_NEW, rows)


def _text(labels: Mapping[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"))


class MetricTotals:
    """The counters of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, *increments: Increment) -> None:
        """Add to counters of what is in no transaction of the store."""
        with self._database.transaction() as connection:
            count(connection, *increments)

    def read(self, connection: Connection) -> Iterator[Increment]:
        """Return the value of every counter."""
        columns = METRIC_INCREMENTS.c
        # One statement, so that rows which are merged at this moment count once.
        wanted = select(columns.metric, columns.labels, func.sum(columns.value))
        for metric, labels, value in connection.execute(
            wanted.group_by(columns.metric, columns.labels)
        ):
            yield Increment(metric, json.loads(labels), float(value))

    def merge(self) -> int:
        """Replace rows of one counter by their sum; return how many rows fewer there are."""
        columns = METRIC_INCREMENTS.c
        with self._database.reading() as connection:
            rows = connection.execute(select(func.count()).select_from(METRIC_INCREMENTS))
            if rows.scalar_one() < _WORTH_MERGING:
                return 0
        some = select(columns.id).order_by(columns.id).limit(_MERGED_AT_ONCE)
        taken = delete(METRIC_INCREMENTS).where(
            columns.id.in_(some.with_for_update(skip_locked=True))
        )
        sums: dict[tuple[str, str], float] = defaultdict(float)
        merged = 0
        with self._database.transaction() as connection:
            for metric, labels, value in connection.execute(
                taken.returning(columns.metric, columns.labels, columns.value)
            ):
                merged += 1
                sums[metric, labels] += value
            rows_left = [
                {"metric": metric, "labels": labels, "value": value}
                for (metric, labels), value in sums.items()
            ]
            if rows_left:
                connection.execute(_NEW, rows_left)
        return merged - len(sums)


# -- gauges --------------------------------------------------------------------------------------


def job_readings(connection: Connection, now: float, silent_seconds: float) -> Iterator[Reading]:
    """Return how many jobs there are, and what queued ones wait for."""
    columns = (JOBS.c.state, JOBS.c.verb, JOBS.c.pool)
    counted = select(*columns, func.count()).where(or_(QUEUED, RUNNING)).group_by(*columns)
    running: dict[str, int] = {}
    for state, verb, pool, number in connection.execute(counted):
        yield Reading("jobs", {"state": state, "verb": verb, "pool": pool}, number)
        if state == "running":
            running[pool] = running.get(pool, 0) + number
    yield from _waiting(connection, now, running, silent_seconds)
    oldest = connection.execute(
        select(
            func.min(
                case(
                    (JOBS.c.queued_at > JOBS.c.not_before, JOBS.c.queued_at),
                    else_=JOBS.c.not_before,
                )
            )
        ).where(QUEUED, JOBS.c.not_before <= now, JOBS.c.paused_by.is_(None))
    ).scalar_one()
    yield Reading("oldest_queued_seconds", {}, 0.0 if oldest is None else max(0.0, now - oldest))


def _waiting(
    connection: Connection, now: float, running: Mapping[str, int], silent_seconds: float
) -> Iterator[Reading]:
    """Count queued jobs by what they wait for, as claims would decide, without reading them."""
    reason = _wait_reason(now).label("reason")
    wanted = select(reason, JOBS.c.pool, JOBS.c.engine).where(QUEUED).subquery()
    counted = select(wanted, func.count()).group_by(*wanted.c)
    full = {
        name
        for name, slots in connection.execute(select(POOLS.c.name, POOLS.c.max_running))
        if running.get(name, 0) >= slots
    }
    engines = {
        engine
        for some in connection.execute(
            select(WORKERS.c.engines).where(_is_alive(now, silent_seconds))
        ).scalars()
        for engine in some
    }
    waiting: dict[str, int] = {}
    for why, pool, engine, number in connection.execute(counted):
        found = why
        if why in {"turn", "table_busy"} and engine not in engines:
            found = "no_worker"
        elif why == "turn" and pool in full:
            found = "pool_full"
        waiting[found] = waiting.get(found, 0) + number
    for found, number in waiting.items():
        yield Reading("jobs_waiting", {"waits_for": found}, number)


def _wait_reason(now: float) -> Any:
    """Return why a queued job waits, as far as its row and its table tell."""
    other = JOBS.alias("other")
    is_paused = or_(
        JOBS.c.paused_by.is_not(None),
        exists().where(SERVICE.c.paused_until > now),
        exists().where(TABLES.c.id == JOBS.c.table_id, TABLES.c.paused_until > now),
    )
    is_busy = exists().where(
        other.c.table_id == JOBS.c.table_id,
        other.c.lane == JOBS.c.lane,
        other.c.state == "running",
    )
    later = case(
        (JOBS.c.waits_for.is_not(None), JOBS.c.waits_for),
        (JOBS.c.trigger == "quiet_period", literal("quiet_period")),
        else_=literal("window"),
    )
    return case(
        (is_paused, literal("paused")),
        (JOBS.c.not_before > now, later),
        (JOBS.c.runs_until <= now, literal("window")),
        (is_busy, literal("table_busy")),
        else_=literal("turn"),
    )


def _is_alive(now: float, silent_seconds: float) -> Any:
    return and_(WORKERS.c.stopped_at.is_(None), WORKERS.c.beat_at > now - silent_seconds)


def table_readings(
    connection: Connection, now: float, *, held: Collection[int], unhealthy_below: int
) -> Iterator[Reading]:
    """Count tables by source and state; `held` are those of which a verb is held."""
    state = case(
        (TABLES.c.paused_until > now, literal("paused")),
        (_IS_UNREADABLE, literal("unreadable")),
        else_=literal("ok"),
    ).label("state")
    known = TABLES.c.gone_at.is_(None)
    counts: dict[tuple[str, str], int] = {}
    counted = select(TABLES.c.source, state, TABLES.c.id.in_(list(held)).label("held"))
    rows = counted.where(known).subquery()
    for source, found, is_held, number in connection.execute(
        select(rows, func.count()).group_by(*rows.c)
    ):
        name = "held" if is_held and found == "ok" else found
        counts[source, name] = counts.get((source, name), 0) + number
    for (source, name), number in counts.items():
        yield Reading("tables", {"source": source, "state": name}, number)
    unhealthy = select(func.count()).where(known, TABLES.c.health_score < unhealthy_below)
    yield Reading("tables_unhealthy", {}, connection.execute(unhealthy).scalar_one())
    yield Reading("tables_held", {}, len(held))
    due = connection.execute(select(func.min(TABLES.c.look_at)).where(known)).scalar_one()
    yield Reading("assessment_lag_seconds", {}, 0.0 if due is None else max(0.0, now - due))


_IS_UNREADABLE = and_(TABLES.c.last_error.is_not(None), TABLES.c.error_count > 0)


def matching_holds(connection: Connection, lakehand: str) -> list[tuple[int, str]]:
    """Return tables and policy digests of the holds that no commit or upgrade has lifted."""
    wanted = (
        select(HOLDS.c.table_id, HOLDS.c.policy_digest)
        .join(TABLES, TABLES.c.id == HOLDS.c.table_id)
        .where(
            TABLES.c.gone_at.is_(None),
            HOLDS.c.lakehand_version == lakehand,
            HOLDS.c.table_version.is_not_distinct_from(TABLES.c.version),
        )
    )
    return [(row.table_id, row.policy_digest) for row in connection.execute(wanted)]


def service_readings(
    connection: Connection, now: float, day: str, silent_seconds: float
) -> Iterator[Reading]:
    """Return the state of workers, budgets and hooks."""
    yield from _workers(connection, now, silent_seconds)
    leads = select(func.count()).where(LEASES.c.name == "scheduler", LEASES.c.until > now)
    yield Reading("scheduler_is_leader", {}, min(1, connection.execute(leads).scalar_one()))
    paused = select(func.count()).where(SERVICE.c.paused_until > now)
    yield Reading("service_paused", {}, connection.execute(paused).scalar_one())
    for row in connection.execute(select(BUDGETS).where(BUDGETS.c.day == day)):
        labels = {"scope": row.scope, "unit": row.unit}
        yield Reading("budget_allowed", labels, row.allowed)
        yield Reading("budget_reserved", labels, row.reserved)
        yield Reading("budget_spent", labels, row.spent)
    waiting = connection.execute(select(func.count()).select_from(OUTBOX)).scalar_one()
    yield Reading("webhook_deliveries_waiting", {}, waiting)


def _workers(connection: Connection, now: float, silent_seconds: float) -> Iterator[Reading]:
    found = {"running": 0, "draining": 0}
    slots = 0
    alive = select(WORKERS.c.wish, WORKERS.c.slots).where(_is_alive(now, silent_seconds))
    for wish, number in connection.execute(alive):
        found["running" if wish is None else "draining"] += 1
        slots += number
    for state, number in found.items():
        yield Reading("workers", {"state": state}, number)
    busy = connection.execute(select(func.count()).where(RUNNING)).scalar_one()
    yield Reading("worker_slots", {"state": "busy"}, min(busy, slots))
    yield Reading("worker_slots", {"state": "free"}, max(0, slots - busy))


def single_table_readings(
    connection: Connection,
    now: float,
    *,
    held: Collection[int],
    unhealthy_below: int | None,
) -> Iterator[Reading]:
    """Return the metrics of single tables: of the unhealthy, or with None of all."""
    wanted = _of_single_tables(now)
    if unhealthy_below is not None:
        ids = list(held)
        wanted = wanted.where(
            or_(TABLES.c.health_score < unhealthy_below, _IS_UNREADABLE, TABLES.c.id.in_(ids))
        )
    for row in connection.execute(wanted):
        labels = {"table": row.table}
        values = {**row._mapping, "table_held": int(row.id in held)}  # noqa: SLF001
        for name, value in values.items():
            if name not in {"id", "table"} and value is not None:
                yield Reading(name, labels, float(value))


def _of_single_tables(now: float) -> Any:
    """Return the query for the metrics of single tables; columns have their names."""
    of_table = MEASUREMENTS.alias("of_table")
    newest = (
        select(func.max(of_table.c.at))
        .where(of_table.c.table_id == TABLES.c.id)
        .correlate(TABLES)
        .scalar_subquery()
    )
    succeeded = (
        select(JOBS.c.ended_at)
        .where(JOBS.c.table_id == TABLES.c.id, JOBS.c.state == "succeeded")
        .order_by(JOBS.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    is_measured = and_(MEASUREMENTS.c.table_id == TABLES.c.id, MEASUREMENTS.c.at == newest)
    return (
        select(
            TABLES.c.id,
            TABLES.c.url.label("table"),
            TABLES.c.health_score.label("table_health_score"),
            MEASUREMENTS.c.file_count.label("table_files"),
            MEASUREMENTS.c.small_file_count.label("table_small_files"),
            MEASUREMENTS.c.total_bytes.label("table_bytes"),
            TABLES.c.commits_since.label("table_commits_since_maintenance"),
            (now - succeeded).label("table_seconds_since_maintenance"),
            case((_IS_UNREADABLE, 1), else_=0).label("table_unreadable"),
        )
        .join_from(TABLES, MEASUREMENTS, is_measured, isouter=True)
        .where(TABLES.c.gone_at.is_(None))
    )
