"""Vacuum of real tables as it will be some time from now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import VacuumRequest, vacuum
from lakehand.settings import Settings
from lakehand.storage import Store, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.model.retention import VacuumReport
    from lakehand.observe import OnProgress

_REQUEST = ("mode", "expire", "undo")


def vacuum_later(
    place: Path | Store,
    *,
    days: float = 30,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> VacuumReport:
    """Vacuum `days` from now; without grace, unless one is given."""
    asked = {name: options.pop(name) for name in _REQUEST if name in options}
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    store = place if isinstance(place, Store) else open_store(place)
    return vacuum(
        DeltaTable(store, clock=clock),
        settings=Settings({"grace": "0", **options}, environment={}),
        request=VacuumRequest(**asked),
        dry_run=dry_run,
        on_progress=on_progress,
        clock=clock,
    )


def data_files(path: Path) -> set[str]:
    """Return the data files below `path`, live or not."""
    files = {file.relative_to(path).as_posix() for file in path.rglob("*.parquet")}
    return {file for file in files if not file.startswith("_")}
