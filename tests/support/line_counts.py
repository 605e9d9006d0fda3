"""Coverage of a parametrized test, only while its cases reach lines that are new.

Tracing adds up to two fifths to the processor's time of a test, and most cases of a test with many
run the lines that the others ran. So a line that the report calls missing may be one that only a
late case of a test with many reaches.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from coverage import Coverage

#: After so many cases in a row without a new line, further cases of a test are not traced.
MOST_CASES_IN_VAIN = 5


class LineCounts:
    """What the cases of each test have added to the coverage that this process measures."""

    def __init__(self) -> None:
        #: Cases in a row that reached no new line, by test.
        self._in_vain: Counter[str] = Counter()

    @contextlib.contextmanager
    def watch(self, item: pytest.Item) -> Iterator[None]:
        """Trace the block, unless the last cases of the same test have reached nothing new.

        Processes that the block starts are measured in any case.
        """
        measured = _current()
        test, _, case = item.nodeid.partition("[")
        if measured is None or not case:
            yield
        elif self._in_vain[test] < MOST_CASES_IN_VAIN:
            before = _lines(measured)
            yield
            self._in_vain[test] = 0 if _lines(measured) > before else self._in_vain[test] + 1
        else:
            measured.stop()
            try:
                yield
            finally:
                measured.start()


def _current() -> Coverage | None:
    """Return what measures this process; whoever measures has loaded the package."""
    coverage = sys.modules.get("coverage")
    return coverage.Coverage.current() if coverage else None


def _lines(measured: Coverage) -> int:
    """Return how many lines were reached so far in this process."""
    return sum(map(len, measured._collector.data.values()))
