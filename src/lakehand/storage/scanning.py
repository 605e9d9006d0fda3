"""Listings of whole trees as Arrow columns, without a Python object per file."""

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

#: Number of prefetched listings.
_AHEAD = 16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanned:
    """One part of a listing."""

    #: Rows of `SCAN_SCHEMA` in `scan_columns`.
    objects: pa.RecordBatch
    #: Directories that were not listed.
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanner:
    """How a store lists directories."""

    #: Lists directories, part by part: the size of a part does not depend on the directory, if the
    #: store allows. The depth of one call depends on the store.
    scan: Callable[[Sequence[str]], Iterator[Scanned]]
    #: Number of directories per call.
    width: int = 1
    #: Useful number of parallel calls.
    parallel: int


class TreeScan:
    """A listing of trees: iterate over it once, for all objects in no particular order."""

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
        #: Directories that were not listed: at the end there are some only if there were too many
        #: objects. A few more objects than the limit may be returned, because running requests are
        #: completed.
        self.left = [*directories]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Stream the objects of several directories in parallel."""
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


#: The remaining parts, and the one before them; None: there are no more.
_Piece = tuple["Iterator[Scanned]", Scanned | None]


def _next_of(pieces: Iterator[Scanned]) -> _Piece:
    return pieces, next(pieces, None)
