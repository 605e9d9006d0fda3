"""Files that tasks look for rows in: each is read once, however often a version is searched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError
from lakehand.rows.row_addresses import REPLACED, FileNumbers, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.row_operation import RowOperation

#: Rows of one object that tasks read, one object after the other.
_ROWS_AN_OBJECT = 2 * 2**20


class ChosenFiles:
    """Which files of a version there is something to look for in, worked out once a version."""

    def __init__(self, choose: Callable[[Snapshot], np.ndarray]) -> None:
        self._choose = choose
        self._of: tuple[Snapshot, np.ndarray] | None = None

    def of(self, snapshot: Snapshot) -> np.ndarray:
        """Return what is said of each row of `snapshot.files`."""
        if self._of is None or self._of[0] is not snapshot:
            self._of = snapshot, self._choose(snapshot)
        return self._of[1]


def bytes_of(snapshot: Snapshot, chosen: np.ndarray) -> int:
    """Return the size of chosen files together."""
    return int(snapshot.files["bytes"].to_numpy()[chosen].sum())


class ReadOnce:
    """What tasks found in files, for as long as the files are as they were."""

    def __init__(self, operation: RowOperation) -> None:
        self._operation = operation
        #: All files that were ever asked for.
        self.files = FileNumbers()
        #: Those that were read, as they were divided among tasks.
        self.portions: list[list[int]] = []
        #: Where the rows of a portion are, if any were found.
        self.keys: dict[int, str] = {}
        #: Rows that were found, by file.
        self.found: dict[int, int] = {}

    def numbers_of(self, snapshot: Snapshot, chosen: np.ndarray) -> list[int]:
        """Return the numbers of chosen files."""
        rows = np.flatnonzero(chosen).tolist()
        files = self._operation.table.data_files(snapshot, rows)
        if len({file.path for file in files}) < len(files):
            raise _named_twice(snapshot, [file.path for file in files])
        return self.files.numbers_of(files)

    def read(self, numbers: Sequence[int], task: Callable[[Mapping[str, Any]], Any]) -> None:
        """Run `task` on the files that were not read yet.

        It gets `portion`, `files` and `numbers`, and returns the `key` of a table with `file` and
        `position`, or none, and how many `rows` it found in each file.
        """
        added = self.files.portions([n for n in numbers if n not in self.found])
        first = len(self.portions)
        self.portions += added
        payloads = [
            {
                "portion": first + index,
                "files": [asdict(self.files[number]) for number in portion],
                "numbers": portion,
            }
            for index, portion in enumerate(added)
        ]
        results = self._operation.tasks.results("match", task, payloads)
        for index, (portion, result) in enumerate(zip(added, results, strict=True)):
            self.found |= dict(zip(portion, result["rows"], strict=True))
            if result["key"] is not None:
                self.keys[first + index] = result["key"]

    def divided(self, alive: set[int]) -> list[list[int]]:
        """Return the portions without files that do not count any more."""
        return [[number for number in portion if number in alive] for portion in self.portions]

    def counts(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return how many rows were found in files, where there were any."""
        return {number: self.found[number] for number in numbers if self.found[number]}


def _named_twice(snapshot: Snapshot, paths: list[str]) -> CorruptLogError:
    path = next(path for path in paths if paths.count(path) > 1)
    return CorruptLogError(
        f"version {snapshot.version} of {snapshot.table} names {path} twice, with different rows"
        " deleted",
        table=snapshot.table,
        version=snapshot.version,
        hint="it is unknown which rows are there, and nothing was changed; verify the table",
    )


def put_in_pieces(operation: RowOperation, incoming: pa.Table) -> tuple[str, ...]:
    """Leave rows where tasks find them; return the keys of the objects."""
    return tuple(
        operation.exchange.put(f"incoming-{start:012d}", incoming.slice(start, _ROWS_AN_OBJECT))
        for start in range(0, incoming.num_rows, _ROWS_AN_OBJECT)
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chosen:
    """What becomes of the rows that tasks found, in their order."""

    #: Whether another row replaces this one.
    replaced: npt.NDArray[np.bool_]
    #: Whether the row leaves its file at all; None: all of them do.
    goes: npt.NDArray[np.bool_] | None = None


class RowSearch:
    """Finds the rows of a table that an operation is about. Files are not read twice for it."""

    #: The version that was searched last, and what was found there.
    snapshot: Snapshot
    places: Places

    def __init__(self, operation: RowOperation, files: ChosenFiles) -> None:
        """`files` says which files are searched."""
        self._operation = operation
        self._files = files
        self._once = ReadOnce(operation)
        self._round = 0

    @property
    def rows_read(self) -> int:
        """Visible rows of files that were read."""
        files = (self._once.files[number] for number in self._once.found)
        return sum((file.rows or 0) - file.deleted_rows for file in files)

    @property
    def files_read(self) -> int:
        return len(self._once.found)

    def find(self, snapshot: Snapshot) -> Places:
        """Return the rows of `snapshot` that are deleted or replaced."""
        with self._operation.call.watch.measure("plan"):
            self.snapshot, self.places = snapshot, self._find(snapshot)
        return self.places

    def _task(self) -> Callable[[Mapping[str, Any]], Any]:
        """Return the task for `ReadOnce.read`."""
        raise NotImplementedError

    def _resolve(self, found: Sequence[pa.Table]) -> Chosen:
        """Decide over the rows that were found in files of the version."""
        raise NotImplementedError

    def _find(self, snapshot: Snapshot) -> Places:
        self._round += 1
        once = self._once
        numbers = once.numbers_of(snapshot, self._files.of(snapshot))
        once.read(numbers, self._task())
        divided = once.divided(set(numbers))
        found = {portion: self._found(portion, divided[portion]) for portion in once.keys}
        chosen = self._resolve(list(found.values()))
        keys = self._put(found, chosen)
        return Places(portions=divided, files=once.files, keys=keys, counts=once.counts(numbers))

    def _found(self, portion: int, alive: Sequence[int]) -> pa.Table:
        [table] = self._operation.exchange.get([self._once.keys[portion]])
        return table.filter(pc.is_in(table["file"], value_set=pa.array(alive, pa.int32())))

    def _put(self, found: Mapping[int, pa.Table], chosen: Chosen) -> dict[int, list[str]]:
        """Leave the places of each portion, with what becomes of the rows there."""
        keys, start = {}, 0
        for portion, table in found.items():
            end = start + table.num_rows
            places = table.select(["file", "position"])
            places = places.append_column(REPLACED, pa.array(chosen.replaced[start:end]))
            if chosen.goes is not None:
                places = places.filter(pa.array(chosen.goes[start:end]))
            if places.num_rows:
                name = f"places-{self._round:03d}-{portion:06d}"
                keys[portion] = [self._operation.exchange.put(name, places)]
            start = end
        return keys
