"""Changes of a table's properties, features and clustering columns, each in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from lakehand.errors import ValidationError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsProperties
from lakehand.model.reports import Outcome, PropertiesReport
from lakehand.observe import reported
from lakehand.observe.clock import Stopwatch, SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.work import PropertyWish
    from lakehand.observe.clock import Clock


@reported
def change_properties(
    table: FormatTable,
    wish: PropertyWish,
    *,
    operation: str,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> PropertiesReport:
    """Commit what `wish` asks for, unless the table is like that already.

    Raises ReplanError if another writer changes metadata or protocol at the same time.
    """
    watch = Stopwatch(clock or SystemClock())
    supported = require_support(table, SupportsProperties, operation=operation)
    _require_something(wish)
    before = table.snapshot()
    table.require("checkpoint", before)
    plan = supported.plan_properties(before, wish)
    outcome: Outcome = "committed" if plan.change.native else "nothing_to_do"
    version, properties = before.version, plan.properties
    if plan.change.native and not dry_run:
        version = table.commit(plan.change, token=str(uuid4())).version
        properties = table.snapshot(version=version).properties
    changed = _changed(before.properties, properties)
    return PropertiesReport(
        operation=operation,
        outcome="dry_run" if dry_run else outcome,
        table=table.store.url,
        version=version,
        before={name: before.properties.get(name) for name in changed},
        after={name: properties.get(name) for name in changed},
        features_added=tuple(sorted({*plan.features} - {*supported.features(before)})),
        clustering_columns=None if wish.cluster_by is None else plan.clustering_columns,
        duration_ms=watch.total_milliseconds(),
    )


def _require_something(wish: PropertyWish) -> None:
    if not (wish.set or wish.features or wish.unset) and wish.cluster_by is None:
        raise ValidationError("name at least one property", field="properties")


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of properties that differ."""
    return [n for n in sorted({*before, *after}) if before.get(n) != after.get(n)]
