"""A table over time: every object has the time of one clock that only the test moves."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import VacuumRequest, vacuum
from lakehand.settings import Settings
from lakehand.storage import MemoryStore
from support.hand_written_logs import add, field, metadata, protocol, put_commit, remove

if TYPE_CHECKING:
    from lakehand.model.retention import VacuumReport

START = datetime(2026, 1, 1, tzinfo=UTC)
_names = itertools.count()


class ClockedTable:
    """A table whose files are empty objects, and the clock that dates them."""

    def __init__(
        self,
        *files: str,
        properties: dict[str, str] | None = None,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.clock = ManualClock(START)
        self.store = MemoryStore(f"lake-{next(_names)}", clock=self.clock)
        self.table = DeltaTable(self.store, clock=self.clock)
        self.versions = 0
        fields = [field(name, "string") for name in ("id", *partition_by)]
        table = metadata(*fields, partition_by=partition_by, properties=properties)
        self.commit(protocol(), table, *(add(file) for file in files))
        self.put(*files)

    def put(self, *keys: str) -> None:
        for key in keys:
            self.store.put(key, b"data")

    def commit(self, *actions) -> None:
        put_commit(self.store, self.versions, *actions)
        self.versions += 1

    def remove(self, *files: str) -> None:
        now = int(self.clock.now().timestamp() * 1000)
        self.commit(*(remove(file, at_ms=now) for file in files))

    def wait(self, **duration: float) -> None:
        self.clock.advance(timedelta(**duration).total_seconds())

    def vacuum(self, *, dry_run: bool = False, on_progress=None, **options) -> VacuumReport:
        asked = {name: options.pop(name) for name in ("mode", "expire", "undo") if name in options}
        return vacuum(
            self.table,
            settings=Settings(options),
            request=VacuumRequest(**asked),
            dry_run=dry_run,
            on_progress=on_progress,
            clock=self.clock,
        )

    @property
    def files(self) -> set[str]:
        """Keys of the data files."""
        keys = {info.key for info in self.store.list()}
        return {key for key in keys if key.endswith(".parquet") and not key.startswith("_")}
