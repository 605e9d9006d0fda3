"""Arrow tables that tasks leave for later tasks, in a place that all of them reach.

This is how keys move between tasks, whatever runs them: never whole rows, and never through the
driver, who is told only how much there is and where.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakehand.engine.exchange import from_stream, to_stream
from lakehand.model.batches import Gathering
from lakehand.temporary import held_directory, scratch_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.runs import Run
    from lakehand.settings import Settings
    from lakehand.storage import Store

#: Rows for one target: the target, the key of the object, the number of rows.
Piece = tuple[int, str, int]

#: What waits to be divided; a piece is hardly larger.
_ROWS_AT_A_TIME, _BYTES_AT_A_TIME = 2 * 2**20, 64 * 2**20


class Exchange(Protocol):
    """A place for tables. Picklable."""

    def put(self, name: str, table: pa.Table) -> str:
        """Store `table` and return its key, which begins with a name and is unique.

        Another attempt at the same task may still write, and divide its rows otherwise.
        """
        ...

    def get(self, keys: Iterable[str]) -> Iterator[pa.Table]:
        """Return tables one by one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _StoreExchange:
    """A place that all machines reach."""

    store: Store
    prefix: str

    def put(self, name: str, table: pa.Table) -> str:
        key = f"{self.prefix}{_unique(name)}.arrow"
        self.store.put(key, to_stream(table).to_pybytes())
        return key

    def get(self, keys: Iterable[str]) -> Iterator[pa.Table]:
        for key in keys:
            yield from_stream(self.store.get(key))


@dataclass(frozen=True, kw_only=True, slots=True)
class _DirectoryExchange:
    """A directory of this machine; its files need not survive a crash, so they are not synced."""

    directory: str

    def put(self, name: str, table: pa.Table) -> str:
        path = str(Path(self.directory, f"{_unique(name)}.arrow"))
        with (
            scratch_errors(path, "rows for later tasks cannot be written"),
            pa.OSFile(path, "wb") as sink,
            pa.ipc.new_file(sink, table.schema) as writer,
        ):
            writer.write_table(table)
        return path

    def get(self, keys: Iterable[str]) -> Iterator[pa.Table]:
        for key in keys:
            with pa.memory_map(key) as source, pa.ipc.open_file(source) as reader:
                yield reader.read_all()


def _unique(name: str) -> str:
    return f"{name}-{uuid4().hex}"


@contextmanager
def open_exchange(run: Run | None, settings: Settings) -> Iterator[Exchange]:
    """Return an empty exchange: in the ledger of `run`, or on this machine, where all tasks are."""
    if run is not None:
        yield _StoreExchange(store=run.store, prefix=run.key("exchange", ""))
        return
    with held_directory(settings.scratch_directory, purpose="exchange") as place:
        yield _DirectoryExchange(directory=str(Path(place).absolute()))


class Partitions:
    """Divides rows among later tasks by one of their columns, some rows at a time."""

    def __init__(self, exchange: Exchange, name: str, *, column: str, count: int) -> None:
        self._exchange = exchange
        self._name = name
        self._column = column
        self._count = count
        self._waiting = Gathering[pa.Table](rows=_ROWS_AT_A_TIME, size=_BYTES_AT_A_TIME)
        self._pieces: list[Piece] = []

    def add(self, table: pa.Table) -> None:
        if self._waiting.add(table):
            self._divide()

    def close(self) -> list[Piece]:
        """Return what was left for whom."""
        self._divide()
        return self._pieces

    def _divide(self) -> None:
        if not self._waiting.rows:
            return
        table = pa.concat_tables(self._waiting.take())
        if self._count == 1:
            self._put(0, table)
            return
        targets = table[self._column].to_numpy() % np.uint64(self._count)
        # Numbers of 16 bits are sorted by their digits, in a twentieth of the time.
        few = targets.astype(np.uint16) if self._count < 2**16 else targets
        order = np.argsort(few, kind="stable")
        ends = np.cumsum(np.bincount(targets.astype(np.int64), minlength=self._count)).tolist()
        sorted_table = table.take(pa.array(order))
        for target, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > start:
                self._put(target, sorted_table.slice(start, end - start))

    def _put(self, target: int, rows: pa.Table) -> None:
        name = f"{self._name}-{target:05d}-{len(self._pieces):05d}"
        self._pieces.append((target, self._exchange.put(name, rows), rows.num_rows))


def by_target(results: Iterable[Sequence[Any]]) -> dict[int, list[str]]:
    """Return the keys that each target has to read, of the pieces that tasks report."""
    found: dict[int, list[str]] = {}
    for target, key, _ in results:
        found.setdefault(int(target), []).append(str(key))
    return found
