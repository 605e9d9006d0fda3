"""Several hot tables under one bound of memory, one set of thresholds and one thread."""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, Unpack

from lakehand.errors import HotTierError, ValidationError
from lakehand.hot.flusher import Flusher
from lakehand.hot.hot_table import HotTable
from lakehand.hot.ownership import log_directory
from lakehand.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from lakehand.hot.hot_reports import FlushReport, StorageStats
    from lakehand.model.reports import OperationReport
    from lakehand.settings.setting_types import CompactSettings, CreateSettings
    from lakehand.storage import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class HotTier:
    """Hot tables by name. The log of each is a directory below that of the tier."""

    def __init__(
        self, directory: str | Path | None = None, **settings: Unpack[CreateSettings]
    ) -> None:
        """`directory` is on a local disk; it is needed unless `hot_durability` is none.

        Other keyword arguments are settings, of the tier and of its tables.
        """
        self._directory = log_directory(directory, field="directory")
        self._given = settings
        self._flusher = Flusher(Settings(settings))
        self._tables: dict[str, HotTable] = {}
        self._lock = threading.Lock()

    def open(self, name: str, uri: str | Path | Store, **options: Any) -> HotTable:
        """Open a hot table under a unique name; `options` are those of `HotTable`."""
        if not _NAME.fullmatch(name):
            message = f"{name!r} cannot be the name of a directory"
            raise ValidationError(message, field="name", value=name)
        with self._lock:
            if name in self._tables and not self._tables[name].is_closed:
                raise HotTierError(f"the hot table {name!r} is open already", table=name)
            log = None if self._directory is None else self._directory / name
            chosen = {"log": log, **self._given, **options}
            table = HotTable(uri, flusher=self._flusher, **chosen).open()
            self._tables[name] = table
            return table

    def __getitem__(self, name: str) -> HotTable:
        """Return an open table by its name."""
        try:
            return self._tables[name]
        except KeyError:
            known = ", ".join(sorted(self._tables)) or "none"
            message = f"no hot table is open as {name!r}; open are: {known}"
            raise ValidationError(message, field="table", value=name) from None

    def bypass_flush(self, table: str) -> FlushReport:
        """Bring all changes of a table straight into its cold table: see `HotTable.flush`."""
        return self[table].flush()

    def merge_changes(self, table: str) -> int:
        """Merge the changes of a table in memory: see `HotTable.merge_changes`."""
        return self[table].merge_changes()

    def flush_delta(self, table: str) -> int:
        """Merge the changes in memory; use `merge_changes`, this name is deprecated."""
        message = "HotTier.flush_delta is now HotTier.merge_changes"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.merge_changes(table)

    def compact(self, table: str, **settings: Unpack[CompactSettings]) -> OperationReport:
        """Rewrite small files of a cold table: see `HotTable.compact`."""
        return self[table].compact(**settings)

    def storage_stats(self, table: str) -> StorageStats:
        """Say where the rows of a table are: see `HotTable.storage_stats`."""
        return self[table].storage_stats()

    def close(self, *, flush: bool = True) -> None:
        """Close all tables, then end the thread; the first error is raised when all is closed."""
        with ExitStack() as stack:
            stack.callback(self._flusher.close)
            for table in self._tables.values():
                stack.callback(table.close, flush=flush)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(flush=error is None or self._directory is None)
