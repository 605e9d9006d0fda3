"""Listings of whole trees as columns: a million objects never become a million values."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

__all__ = ["Scanned", "Scanner", "TreeScan"]

#: Pieces that are asked for ahead of the one that is looked at.
_AHEAD = 16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanned:
    """What one answer told of a tree."""

    #: Rows of `SCAN_SCHEMA` in `scan_columns`.
    objects: pa.RecordBatch
    #: Directories that were not looked into.
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanner:
    """How a store lists directories."""

    #: Returns what is in some directories, piece by piece: no piece grows with the directory where
    #: the store can help it. How deep one call goes is what suits the store.
    scan: Callable[[Sequence[str]], Iterator[Scanned]]
    #: How many directories one call takes.
    width: int = 1
    #: How many calls are worth making at the same time.
    parallel: int


class TreeScan:
    """A listing of trees: iterate over it once, for all objects in no order."""

    def __init__(
        self,
        scanner: AbstractContextManager[Scanner],
        *,
        enter: Callable[[str], bool],
        directories: Iterable[str],
        most_objects: int | None = None,
    ) -> None:
        self._scanner = scanner
        self._enter = enter
        self._most_objects = math.inf if most_objects is None else most_objects
        self._found = 0
        #: Directories that were not looked into: at the end there are some only if there were too
        #: many objects. A few more than allowed are found: requests under way are waited for.
        self.left = [*directories]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the objects, several directories at a time."""
        asked = deque[Future[_Piece]]()
        with self._scanner as scanner, ThreadPoolExecutor(scanner.parallel) as pool:
            try:
                while asked or self._goes_on:
                    while self._goes_on and len(asked) < self._ahead(scanner):
                        pieces = scanner.scan(self._next(scanner.width))
                        asked.append(pool.submit(_next_of, pieces))
                    pieces, found = asked.popleft().result()
                    if found is None:
                        continue
                    asked.append(pool.submit(_next_of, pieces))
                    self.left += filter(self._enter, found.directories)
                    self._found += found.objects.num_rows
                    if found.objects.num_rows:
                        yield found.objects
            finally:
                for future in asked:
                    future.cancel()

    @property
    def _goes_on(self) -> bool:
        return bool(self.left) and self._found < self._most_objects

    def _ahead(self, scanner: Scanner) -> int:
        return _AHEAD if self._most_objects == math.inf else scanner.parallel

    def _next(self, count: int) -> list[str]:
        chosen = self.left[-count:]
        del self.left[-count:]
        return chosen


#: Pieces that are still to come, and the one before them; None: that was all.
_Piece = tuple["Iterator[Scanned]", Scanned | None]


def _next_of(pieces: Iterator[Scanned]) -> _Piece:
    return pieces, next(pieces, None)
