"""Single steps, each taken only if it is due: as sinks take them, and `maintain`."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ObjectNotFoundError, RefusedError, StorageError, ValidationError
from lakehand.maintain import cluster, compact
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.order import order_of, parse_order
from lakehand.observe.logs import get_logger, log_event
from lakehand.retention.vacuum import vacuum
from lakehand.rewrite.ordering import resolve_order
from lakehand.rewrite.prepare import Request

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.order import Order
    from lakehand.model.reports import OperationReport
    from lakehand.model.retention import VacuumReport
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = [
    "RewriteChoice",
    "carry_out",
    "choose_rewrite",
    "rewrite_if_due",
    "vacuum_if_due",
    "vacuum_wait",
]

#: When the table was vacuumed last, where `vacuum_interval` asks for it.
_VACUUMED = "_lakehand/vacuumed.json"
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
) -> OperationReport:
    """Rewrite what an automatic run would: in the order of the table, if it has one."""
    snapshot = table.snapshot()
    choice = choose_rewrite(table, snapshot)
    return carry_out(
        table, choice, snapshot, settings=settings, spark=spark, on_progress=on_progress
    )


def carry_out(
    table: FormatTable, choice: RewriteChoice, snapshot: Snapshot, **options: Any
) -> OperationReport:
    verb = cluster if choice.request.operation == "cluster" else compact
    return verb(table, request=choice.request, snapshot=snapshot, **options)


def choose_rewrite(table: FormatTable, snapshot: Snapshot) -> RewriteChoice:
    """Choose to cluster where the table has an order that it can be given, else to compact."""
    order = _order_of_table(table, snapshot)
    if order is None:
        return RewriteChoice(Request(automatic=True))
    try:
        table.require("order", snapshot)
        known = snapshot.partition_columns
        resolve_order(order.terms, order.curve, snapshot.schema, partition_columns=known)
    except (RefusedError, ValidationError) as error:
        note = f"rows are not put in order by {', '.join(order.texts)}: {error.message}"
        return RewriteChoice(Request(automatic=True), note)
    request = Request(automatic=True, operation="cluster", by=order.texts, curve=order.curve)
    return RewriteChoice(request)


def _order_of_table(table: FormatTable, snapshot: Snapshot) -> Order | None:
    """Return the order that the table declares, or that most of its bytes were put into."""
    stored = _most_stored(table.stored_orders(snapshot), snapshot.files["bytes"])
    declared = table.clustering(snapshot)
    if declared and (stored is None or set(stored.columns) != set(declared)):
        return order_of(declared, "hilbert")
    return stored


def _most_stored(orders: pa.Array, sizes: pa.ChunkedArray) -> Order | None:
    # An order that was tried on a few files is no reason to sort all the others.
    half = (pc.sum(sizes).as_py() or 0) / 2
    grouped = pa.table({"order": orders, "bytes": sizes}).group_by("order")
    totals = grouped.aggregate([("bytes", "sum")]).drop_null().to_pylist()
    most = next((row["order"] for row in totals if row["bytes_sum"] > half), None)
    return None if most is None else parse_order(most)


def vacuum_wait(table: FormatTable, *, settings: Settings, clock: Clock) -> timedelta:
    """Return how long `vacuum_interval` still asks to wait since the last vacuum; 0: not at all."""
    interval: timedelta | None = settings["vacuum_interval"]
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
    report = vacuum(table, settings=settings, clock=clock, dry_run=dry_run, **options)
    if settings["vacuum_interval"] is not None and not (dry_run or report.errors):
        _note_vacuumed(table.store, clock.now())
    return report


@dataclass(frozen=True, kw_only=True, slots=True)
class _Vacuumed:
    """When a table was vacuumed last."""

    at: datetime


def _vacuumed_at(store: Store) -> datetime | None:
    try:
        return read_value(_Vacuumed, parse_object(store.get(_VACUUMED))).at
    except (ObjectNotFoundError, DocumentError):
        # To vacuum once too often does no harm.
        return None


def _note_vacuumed(store: Store, at: datetime) -> None:
    try:
        store.put(_VACUUMED, json.dumps({"at": at.isoformat()}).encode())
    except StorageError as error:
        message = "When %s was vacuumed could not be noted, so it will be again: %s"
        log_event(_logger, logging.WARNING, "vacuum_not_noted", message, store.url, error.message)
