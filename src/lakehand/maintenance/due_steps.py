"""Single steps, each taken only if it is due: as sinks take them, and `maintain`.

What a step needs is imported when it is due: Spark commits each write in a new process.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ObjectNotFoundError, RefusedError, StorageError, ValidationError
from lakehand.formats.optional import SupportsClustering, clustering_columns
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.order import Order, order_of, parse_order
from lakehand.observe import OnProgress, get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import OperationReport
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.clock import Clock
    from lakehand.rewrite.prepare import Request
    from lakehand.settings import Settings
    from lakehand.storage import Store

#: When the table was vacuumed last, where `vacuum_interval` asks for it.
_VACUUMED = "_lakehand/vacuumed.json"
#: When a writer that makes one commit looked last whether something is due, and at which version.
_LOOKED = "_lakehand/looked.json"
_WRITERS_INTERVAL = timedelta(days=1)
_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RewriteChoice:
    """How files are rewritten, and why not in an order that the table has."""

    request: Request
    note: str | None = None


def rewrite_if_due(
    table: FormatTable,
    *,
    settings: Settings,
    spark: Any = None,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> OperationReport:
    """Rewrite what an automatic run would: in the order of the table, if it has one."""
    snapshot = table.snapshot()
    choice = choose_rewrite(table, snapshot, settings)
    return carry_out(
        table,
        choice,
        snapshot,
        settings=settings,
        spark=spark,
        on_progress=on_progress,
        clock=clock,
    )


def carry_out(
    table: FormatTable, choice: RewriteChoice, snapshot: Snapshot, **options: Any
) -> OperationReport:
    from lakehand.rewrite.run import cluster, compact

    verb = cluster if choice.request.operation == "cluster" else compact
    return verb(table, request=choice.request, snapshot=snapshot, **options)


def choose_rewrite(table: FormatTable, snapshot: Snapshot, settings: Settings) -> RewriteChoice:
    """Choose to cluster where the table has an order that it can be given, else to compact.

    One that the settings ask for and that it cannot be given is an error, not a reason to compact.
    """
    from lakehand.rewrite.prepare import Request
    from lakehand.sorting.ordering import resolve_order

    order = _order_of_table(table, snapshot, settings) if settings.auto_cluster else None
    if order is None:
        return RewriteChoice(Request(automatic=True))
    try:
        table.require("order", snapshot)
        known = snapshot.partition_columns
        resolve_order(order.terms, order.curve, snapshot.schema, partition_columns=known)
    except (RefusedError, ValidationError) as error:
        if settings.cluster_by:
            raise
        note = f"rows are not clustered by {', '.join(order.texts)}: {error.message}"
        return RewriteChoice(Request(automatic=True), note)
    request = Request(automatic=True, operation="cluster", by=order.texts, curve=order.curve)
    return RewriteChoice(request)


def _order_of_table(table: FormatTable, snapshot: Snapshot, settings: Settings) -> Order | None:
    """Return the order that is asked for, that the table declares, or that it was put into last."""
    stored = None
    if isinstance(table, SupportsClustering):
        stored = _last_stored(table.stored_orders(snapshot), snapshot.files)
    wanted = settings.cluster_by or clustering_columns(table, snapshot)
    is_asked = settings.sources["cluster_curve"] != "default"
    if not wanted or (stored and set(stored.columns) == set(wanted) and not is_asked):
        return stored
    return order_of(wanted, settings.cluster_curve)


def _last_stored(orders: pa.Array, files: pa.Table) -> Order | None:
    """Return the order of most bytes, among files up to the last that was clustered.

    An order that was tried on a few files is no reason to sort all the others, and later rows are
    no reason to forget it.
    """
    known = pa.table(
        {"order": orders, "bytes": files["bytes"], "modified_at": files["modified_at"]}
    )
    last = pc.max(known.filter(pc.is_valid(known["order"]))["modified_at"])
    if not last.is_valid:
        return None
    there = known.filter(pc.less_equal(known["modified_at"], last))
    half = (pc.sum(there["bytes"]).as_py() or 0) / 2
    totals = there.group_by("order").aggregate([("bytes", "sum")]).drop_null().to_pylist()
    most = next((row["order"] for row in totals if row["bytes_sum"] > half), None)
    return None if most is None else parse_order(most)


def vacuum_wait(table: FormatTable, *, settings: Settings, clock: Clock) -> timedelta:
    """Return how long `vacuum_interval` still asks to wait since the last vacuum; 0: not at all."""
    interval: timedelta | None = settings.vacuum_interval
    last = _vacuumed_at(table.store) if interval is not None else None
    now = clock.now()
    if interval is None or last is None or last > now:
        return timedelta(0)
    return max(interval - (now - last), timedelta(0))


def vacuum_if_due(
    table: FormatTable,
    *,
    settings: Settings,
    clock: Clock,
    dry_run: bool = False,
    **options: Any,
) -> VacuumReport | None:
    """Vacuum, and note when, unless the last time is not long enough ago: None then."""
    if vacuum_wait(table, settings=settings, clock=clock):
        return None
    from lakehand.retention.vacuum import vacuum

    report = vacuum(table, settings=settings, clock=clock, dry_run=dry_run, **options)
    if settings.vacuum_interval is not None and not (dry_run or report.errors):
        _note_vacuumed(table.store, clock.now())
    return report


def vacuum_beside_writers(
    table: FormatTable, *, settings: Settings, clock: Clock, **options: Any
) -> VacuumReport | None:
    """Vacuum as writers do between commits: once a day unless `vacuum_interval` is set.

    The day begins with the first look, and with each try: a table that refuses to be vacuumed says
    so once a day, and two writers do not vacuum it at once.
    """
    if settings.vacuum_interval is not None:
        return vacuum_if_due(table, settings=settings, clock=clock, **options)
    chosen = settings.with_call({"vacuum_interval": _WRITERS_INTERVAL})
    is_known = _vacuumed_at(table.store) is not None
    if is_known and vacuum_wait(table, settings=chosen, clock=clock):
        return None
    from lakehand.retention.vacuum import vacuum

    _note_vacuumed(table.store, clock.now())
    return vacuum(table, settings=chosen, clock=clock, **options) if is_known else None


def maintain_after_write(
    table: FormatTable, *, version: int, settings: Settings, clock: Clock, spark: Any = None
) -> None:
    """Do for a table after a single write what a sink does between its commits, if it is due.

    An error here fails no write: it is logged.
    """
    if not settings.sink_maintenance or not _is_look_due(table.store, version, settings, clock):
        return
    chosen = settings_of_writers(settings, spark)
    if chosen.auto_compact:
        _attempt(table, lambda: rewrite_if_due(table, settings=chosen, spark=spark, clock=clock))
    _attempt(table, lambda: vacuum_beside_writers(table, settings=chosen, clock=clock))


def settings_of_writers(settings: Settings, spark: Any) -> Settings:
    """Return the settings of a writer's maintenance, which starts no Spark by itself."""
    if spark is None and settings.sources["engine"] == "default":
        return settings.with_call({"engine": "local"})
    return settings


def _attempt(table: FormatTable, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  maintenance is no reason to fail a write
        message = "Maintenance of %s failed: %s"
        url = table.store.url
        log_event(_logger, logging.WARNING, "upkeep_failed", message, url, error, table=url)


def _is_look_due(store: Store, version: int, settings: Settings, clock: Clock) -> bool:
    """Say whether enough commits or time lie behind the last look, and note this one if so."""
    last, now = _read_note(store, _LOOKED), clock.now()
    commits: int = settings.maintenance_commits
    if last is None:
        is_due = version >= commits
    else:
        waited = now - last.at
        is_late = waited >= settings.maintenance_interval or waited < timedelta(0)
        is_due = is_late or version - last.version >= commits
    if is_due or last is None:
        _write_note(store, _LOOKED, {"at": now.isoformat(), "version": version})
    return is_due


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """When something was done to a table last, and at which version."""

    at: datetime
    version: int = 0


def _read_note(store: Store, key: str) -> _Note | None:
    try:
        return read_value(_Note, parse_object(store.get(key)))
    except (ObjectNotFoundError, DocumentError):
        return None


def _write_note(store: Store, key: str, note: dict[str, Any]) -> None:
    try:
        store.put(key, json.dumps(note).encode())
    except StorageError as error:
        message = "When %s was maintained could not be noted, so it will be again: %s"
        log_event(_logger, logging.WARNING, "note_not_written", message, store.url, error.message)


def _vacuumed_at(store: Store) -> datetime | None:
    # To vacuum once too often does no harm.
    note = _read_note(store, _VACUUMED)
    return None if note is None else note.at


def _note_vacuumed(store: Store, at: datetime) -> None:
    _write_note(store, _VACUUMED, {"at": at.isoformat()})
