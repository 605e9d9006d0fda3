"""Files of the log on local disk, where DuckDB reads them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lakehand.storage.scratch import holds_wildcards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.storage import Store

__all__ = ["LogFiles", "open_log_files"]

_PARALLEL_DOWNLOADS = 8


class LogFiles:
    """Gives keys of the log a local path: their own, or that of a copy."""

    def __init__(self, store: Store, scratch: Path) -> None:
        self._store = store
        self._scratch = scratch
        self._paths: dict[str, Path] = {}

    @property
    def scratch(self) -> Path:
        """A directory of its own, for whatever must leave memory."""
        return self._scratch

    def bring(self, keys: Sequence[str]) -> list[Path]:
        """Return a local path for each key; copies vanish with the `with` block."""
        missing = [key for key in keys if key not in self._paths]
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            self._paths.update(zip(missing, pool.map(self._bring_one, missing), strict=True))
        return [self._paths[key] for key in keys]

    def _bring_one(self, key: str) -> Path:
        local = self._store.local_path(key)
        if local is not None:
            # The errors of the store say more than those of DuckDB.
            self._store.get_range(key, start=0, length=1)
        if local is not None and not holds_wildcards(local):
            return local
        copy = self._scratch / Path(key).name
        if local is not None:
            copy.symlink_to(local.absolute())
        else:
            self._store.download(key, copy)
        return copy


@contextmanager
def open_log_files(store: Store) -> Iterator[LogFiles]:
    with TemporaryDirectory(prefix="lakehand-log-") as scratch:
        yield LogFiles(store, Path(scratch))


def quoted(text: str) -> str:
    """Return a string as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"
