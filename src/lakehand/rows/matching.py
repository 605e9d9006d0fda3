"""Rows for which a condition is true, by their places: from metadata where that can tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakehand.engine.cores import granted_cores
from lakehand.expressions.pruning import ALL, UNKNOWN, decide
from lakehand.formats.rows import PlacedColumns
from lakehand.formats.scan import columns_with_bounds
from lakehand.model.snapshot import FILE_NUMBER, POSITION
from lakehand.model.work import DataFile
from lakehand.rows.places import FileNumbers, Places, visible_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.worker import FormatWorker, TaskLimits
    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.exchange import Exchange
    from lakehand.rows.workshop import Workshop

__all__ = ["MatchTask", "Matching"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchTask:
    """From files to the places of rows that fulfil a condition. Picklable."""

    worker: FormatWorker
    exchange: Exchange
    #: What is read of the rows; their places are all that counts.
    wanted: PlacedColumns
    limits: TaskLimits

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        limits = replace(self.limits, threads=granted_cores())
        counts = np.zeros(len(files), np.int64)
        numbers = pa.array(payload["numbers"], pa.int32())
        found: list[pa.Table] = []
        for batch in self.worker.read_placed(files, self.wanted, limits=limits):
            places = batch.column(FILE_NUMBER)
            counts += np.bincount(places.to_numpy(), minlength=len(files))
            found.append(
                pa.table({"file": numbers.take(places), "position": batch.column(POSITION)})
            )
        name = f"matches-{payload['portion']:06d}"
        key = self.exchange.put(name, pa.concat_tables(found)) if found else None
        return {"key": key, "rows": counts.tolist()}


class Matching:
    """Finds rows that fulfil a condition. Files that were read once are not read again."""

    #: The version that was searched last, and the rows that were compared for it.
    snapshot: Snapshot
    places: Places

    def __init__(self, shop: Workshop, predicate: Predicate) -> None:
        self._shop = shop
        self._predicate = predicate
        self._files = FileNumbers()
        self._portions: list[list[int]] = []
        self._keys: dict[int, str] = {}
        #: Matching rows by file, of files that were read.
        self._read: dict[int, int] = {}

    @property
    def rows_read(self) -> int:
        """Visible rows of files that were read."""
        return sum(self._count(number) for number in self._read)

    def find(self, snapshot: Snapshot) -> Places:
        """Return the rows of `snapshot` for which the condition is true."""
        with self._shop.call.watch.measure("plan"):
            self.snapshot, self.places = snapshot, self._find(snapshot)
        return self.places

    def _find(self, snapshot: Snapshot) -> Places:
        verdicts = self._verdicts(snapshot)
        whole = self._numbers(snapshot, verdicts == ALL)
        unclear = self._numbers(snapshot, verdicts == UNKNOWN)
        self._match(unclear)
        counts = {number: self._read[number] for number in unclear if self._read[number]}
        if counts and self._must_read_all:
            self._match(whole)
            counts |= {number: self._read[number] for number in whole if self._read[number]}
            whole = []
        alive = {*unclear, *counts}
        divided = [[n for n in portion if n in alive] for portion in self._portions]
        return Places(
            portions=divided,
            files=self._files,
            keys={
                portion: [key]
                for portion, key in self._keys.items()
                if any(number in counts for number in divided[portion])
            },
            counts=counts,
            unread={number: self._count(number) for number in whole},
        )

    @property
    def _must_read_all(self) -> bool:
        """Whether readers of changes hear of nothing but rows that are written down for them."""
        return self._shop.worker.feeds_changes and not self._shop.worker.hides_rows

    def _verdicts(self, snapshot: Snapshot) -> np.ndarray:
        names = columns_with_bounds(self._predicate, snapshot)
        if names:
            snapshot = self._shop.table.snapshot(version=snapshot.version, statistics=names)
        verdicts: np.ndarray = decide(self._predicate, snapshot.files).to_numpy(
            zero_copy_only=False
        )
        return verdicts

    def _numbers(self, snapshot: Snapshot, chosen: np.ndarray) -> list[int]:
        rows = np.flatnonzero(chosen).tolist()
        return self._files.numbers_of(self._shop.table.data_files(snapshot, rows))

    def _count(self, number: int) -> int:
        return visible_rows(self._files[number], self._shop.worker)

    def _match(self, numbers: Sequence[int]) -> None:
        """Read the files that were not read yet."""
        added = self._files.portions([n for n in numbers if n not in self._read])
        first = len(self._portions)
        self._portions += added
        payloads = [
            {
                "portion": first + index,
                "files": [asdict(self._files[number]) for number in portion],
                "numbers": portion,
            }
            for index, portion in enumerate(added)
        ]
        results = self._shop.labour.run("match", self._task(), payloads)
        for index, (portion, result) in enumerate(zip(added, results, strict=True)):
            self._read |= dict(zip(portion, result["rows"], strict=True))
            if result["key"] is not None:
                self._keys[first + index] = result["key"]

    def _task(self) -> MatchTask:
        columns = self._predicate.columns or tuple(self._shop.worker.schema.names[:1])
        return MatchTask(
            worker=self._shop.worker,
            exchange=self._shop.exchange,
            wanted=PlacedColumns(columns=columns[:1], where=self._predicate.text),
            limits=self._shop.limits,
        )
