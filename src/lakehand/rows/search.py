"""Duplicates of a whole table: found in tasks, and again with files added since."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.rows.duplicates import CompareTask, HashTask, RankTask, Searching, ValuesTask
from lakehand.rows.row_addresses import FileNumbers, Places, check_count
from lakehand.rows.table_exchange import Piece, by_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakehand.formats.optional import SupportsRowChanges
    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.row_operation import RowOperation

#: Memory that a row takes while its hash is compared with others, without spilled data.
_BYTES_A_ROW = 128
#: Rows whose hashes one task compares.
_ROWS_A_TASK, _MANY_TASKS = 3 * 2**20, 32
#: What a file without a row count is taken to hold.
_GUESSED_ROW_BYTES = 16


def partitions_for(snapshot: Snapshot, *, memory_bytes: int) -> int:
    """Return among how many tasks the hashes of all rows have to be divided."""
    guessed = pc.divide(snapshot.files["bytes"], _GUESSED_ROW_BYTES)
    rows = pc.sum(pc.coalesce(snapshot.files["rows"], guessed)).as_py() or 0
    by_memory = -(-rows * _BYTES_A_ROW // memory_bytes)
    # Half a second of work each, so that no core is idle. Each of them reads from each portion.
    return max(1, by_memory, min(-(-rows // _ROWS_A_TASK), _MANY_TASKS))


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The duplicates of one version."""

    snapshot: Snapshot
    #: Rows that another row stands for.
    places: Places
    #: How many keys have a given number of surplus rows.
    distribution: Mapping[int, int]
    rows: int


class Search:
    """Finds duplicates. Files that were hashed once are not read for that again."""

    #: What was found last.
    found: Found

    def __init__(self, operation: RowOperation, searching: Searching) -> None:
        self._operation = operation
        self._searching = searching
        self._files = FileNumbers()
        self._rows: list[int] = []
        self._portions: list[list[int]] = []
        self._hashes: list[Piece] = []
        self._round = 0

    def find(self, snapshot: Snapshot) -> Found:
        """Return the duplicates of `snapshot`."""
        with self._operation.call.watch.measure("plan"):
            self.found = self._find(snapshot)
        return self.found

    def _find(self, snapshot: Snapshot) -> Found:
        self._round += 1
        live = self._take_in(snapshot)
        alive = set(live)
        divided = [[n for n in portion if n in alive] for portion in self._portions]
        twins = by_target(self._compare(divided))
        ranks = _ranks(self._operation.table, snapshot) if twins else np.empty(0, np.int64)
        rank_of = dict(zip(live, ranks.tolist(), strict=False))
        ranked = self._rank(divided, self._values(divided, twins, rank_of))
        losers = [piece for result in ranked for piece in result["pieces"]]
        # A file has rows in several partitions.
        counts = _total(result["by_file"] for result in ranked)
        return Found(
            snapshot=snapshot,
            places=Places(
                portions=divided, files=self._files, keys=by_target(losers), counts=counts
            ),
            distribution=_total(result["distribution"] for result in ranked),
            rows=sum(self._rows[number] for number in live),
        )

    def _take_in(self, snapshot: Snapshot) -> list[int]:
        """Hash the rows of files that are new; return the numbers of all files, in their order."""
        files = self._operation.table.data_files(snapshot, range(snapshot.file_count))
        known = len(self._files)
        numbers = self._files.numbers_of(files)
        self._rows += [0] * (len(self._files) - known)
        self._hash(range(known, len(self._files)))
        return numbers

    def _hash(self, fresh: Sequence[int]) -> None:
        added = self._files.portions(fresh)
        first = len(self._portions)
        self._portions += added
        payloads = [
            {
                "portion": first + index,
                "files": [asdict(self._files[number]) for number in numbers],
                "numbers": numbers,
            }
            for index, numbers in enumerate(added)
        ]
        results = self._operation.tasks.results("hash", HashTask(search=self._searching), payloads)
        for numbers, result in zip(added, results, strict=True):
            self._hashes += [tuple(piece) for piece in result["pieces"]]
            for number, rows in zip(numbers, result["rows"], strict=True):
                check_count(self._files[number], rows)
                self._rows[number] = rows

    def _compare(self, divided: Sequence[Sequence[int]]) -> list[Piece]:
        payloads = self._of_partitions(divided, self._hashes)
        results = self._operation.tasks.results(
            "compare", CompareTask(search=self._searching), payloads
        )
        return [piece for result in results for piece in result["pieces"]]

    def _values(
        self,
        divided: Sequence[Sequence[int]],
        twins: Mapping[int, list[str]],
        rank_of: Mapping[int, int],
    ) -> list[Piece]:
        payloads = [
            {
                "name": f"{self._round}-{portion}",
                "files": [asdict(self._files[number]) for number in divided[portion]],
                "numbers": divided[portion],
                "ranks": [rank_of[number] for number in divided[portion]],
                "keys": keys,
            }
            for portion, keys in sorted(twins.items())
        ]
        results = self._operation.tasks.results(
            "compare", ValuesTask(search=self._searching), payloads
        )
        return [piece for result in results for piece in result["pieces"]]

    def _rank(
        self, divided: Sequence[Sequence[int]], values: Sequence[Piece]
    ) -> list[Mapping[str, Any]]:
        payloads = self._of_partitions(divided, values)
        return self._operation.tasks.results("compare", RankTask(search=self._searching), payloads)

    def _of_partitions(
        self, divided: Sequence[Sequence[int]], pieces: Sequence[Piece]
    ) -> list[dict[str, Any]]:
        """Return a payload for each partition that has pieces."""
        rows = _total([(partition, rows)] for partition, _, rows in pieces)
        return [
            {
                "name": f"{self._round}-{partition}",
                "keys": keys,
                "rows": rows[partition],
                "portions": divided,
                "file_count": len(self._files),
            }
            for partition, keys in sorted(by_target(pieces).items())
        ]


def _total(parts: Iterable[Sequence[tuple[int, int]]]) -> dict[int, int]:
    """Add up what tasks counted, by what they counted it for."""
    total: Counter[int] = Counter()
    for counts in parts:
        total.update({int(subject): int(count) for subject, count in counts})
    return dict(sorted(total.items()))


def _ranks(table: SupportsRowChanges, snapshot: Snapshot) -> np.ndarray:
    """Return the place of each file in the order in which files came into the table.

    Files whose version is unknown are older than the log, and so than all others.
    """
    files = snapshot.files
    order = pc.sort_indices(
        pa.table(
            {
                "version": pc.coalesce(table.file_versions(snapshot), -1),
                "modified_at": files["modified_at"],
                "path": files["path"],
            }
        ),
        sort_keys=[(name, "ascending") for name in ("version", "modified_at", "path")],
    )
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks
