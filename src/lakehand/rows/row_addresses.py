"""Rows by their addresses: the number of their file, and their position in it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.runs.operation import divide_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.formats.rows import Positions
    from lakehand.formats.worker import FormatWorker
    from lakehand.model.work import DataFile
    from lakehand.rows.table_exchange import Exchange


class PlaceSet:
    """Says of many rows at once whether they are in the set; it takes a byte a row of the files."""

    def __init__(self, positions: Sequence[Positions]) -> None:
        """`positions` are those of each file, by its number."""
        # One more than there are rows up to the last one: it stands for all behind that.
        sizes = [int(places.max(initial=-1)) + 2 for places in positions]
        self._starts = np.cumsum([0, *sizes])
        self._holds = np.zeros(self._starts[-1], np.bool_)
        for start, places in zip(self._starts, positions, strict=False):
            self._holds[start + places] = True

    def holds(self, files: npt.NDArray[np.int32], positions: Positions) -> npt.NDArray[np.bool_]:
        """Say of each row whether it is in the set."""
        first, behind = self._starts[files], self._starts[files + 1]
        found: npt.NDArray[np.bool_] = self._holds[np.minimum(first + positions, behind - 1)]
        return found

    def filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on the rows that are in the set; the last two columns of batches are places."""
        for batch in batches:
            places = (batch.column(batch.num_columns - back).to_numpy() for back in (2, 1))
            wanted = self.holds(*places)
            if wanted.any():
                yield batch if wanted.all() else batch.filter(pa.array(wanted))


#: A column that tables of places may have: whether the row is replaced by another.
REPLACED = "is_replaced"
#: Files of a task: keys are read fast, but what is left of files is written by one core each.
_FEWEST_BYTES, _MOST_BYTES = 16 * 2**20, 64 * 2**20
#: Tasks that small tables are divided into, so that no core is idle while others finish theirs.
_MANY_TASKS = 64


class FileNumbers:
    """Numbers for files, which stay the same while more of them come.

    A file of which other rows are deleted than before is another file.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._files: list[DataFile] = []

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> DataFile:
        return self._files[number]

    def numbers_of(self, files: Sequence[DataFile]) -> list[int]:
        """Return the number of each file; files that were never seen get the next ones."""
        numbers = []
        for file in files:
            key = json.dumps(asdict(file), sort_keys=True)
            number = self._numbers.setdefault(key, len(self._files))
            if number == len(self._files):
                self._files.append(file)
            numbers.append(number)
        return numbers

    def portions(self, numbers: Sequence[int]) -> list[list[int]]:
        """Divide files among tasks."""
        number_of = {self._files[number].path: number for number in numbers}
        chosen = [self._files[number] for number in numbers]
        size = sum(file.bytes for file in chosen)
        wanted = min(max(size // _MANY_TASKS, _FEWEST_BYTES), _MOST_BYTES)
        # Tasks of one size end together; those of files that differ a little are of one size.
        most = size * 9 // (8 * max(1, -(-size // wanted)))
        divided = divide_files(chosen, most_bytes=most)
        return [[number_of[file.path] for file in portion] for portion in divided]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Rows of files that tasks found. Files have numbers, and those of a portion go together."""

    portions: Sequence[Sequence[int]]
    #: By number.
    files: FileNumbers
    #: What names the rows of each portion: tables with `file`, `position` and maybe REPLACED.
    keys: Mapping[int, list[str]]
    #: Rows by file, where there are any.
    counts: Mapping[int, int]
    #: Rows by file, where all of them are deleted without being read.
    unread: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.counts.values()) + sum(self.unread.values())

    def files_of(self, portion: int) -> list[int]:
        """Return the numbers of the files in a portion that lose rows."""
        return [number for number in self.portions[portion] if number in self.counts]

    def rows_of(self, portion: int, exchange: Exchange) -> pa.Table:
        """Return the places of a portion, sorted."""
        found = pa.concat_tables(exchange.get(self.keys[portion]))
        return found.sort_by([("file", "ascending"), ("position", "ascending")])


def visible_rows(file: DataFile, worker: FormatWorker) -> int:
    """Return the rows that readers see of a file, by its footer where the table does not say."""
    return worker.count_rows([file]) if file.rows is None else file.rows - file.deleted_rows


def check_count(file: DataFile, rows: int) -> None:
    """Raise CorruptFileError if a file was read with other rows than the table says it has."""
    if file.rows is not None and rows != file.rows - file.deleted_rows:
        raise CorruptFileError(
            f"{file.path} has {rows} visible rows, and {file.rows - file.deleted_rows} by the"
            " table",
            path=file.path,
            hint="nothing was written; verify the table",
        )
