"""Files that tasks look for rows in: each is read once, however often a version is searched."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from lakehand.rows.row_addresses import FileNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.row_operation import RowOperation


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
        return self.files.numbers_of(self._operation.table.data_files(snapshot, rows))

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
