"""Cases of a default run: some of a test's parameters, of which `make soak` runs all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest


def not_in_turn(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield tests marked `in_turn` whose parameter has another value than the one in turn.

    Values take turns over the cases of the other parameters, so that each of these has one, and
    over tests, so that a value that is dear to set up has some of them.
    """
    tests: dict[str, dict[tuple[str, ...], list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        mark = item.get_closest_marker("in_turn")
        if mark and hasattr(item, "callspec") and mark.args[0] in item.callspec.params:
            others = {name: repr(value) for name, value in item.callspec.params.items()}
            del others[mark.args[0]]
            cases = tests[item.nodeid.partition("[")[0]]
            cases.setdefault(tuple(others.values()), []).append(item)
    for first, cases in enumerate(tests.values()):
        for number, values in enumerate(cases.values(), first):
            del values[number % len(values)]
            yield from values


def not_in_share(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield tests marked `one_in(n)` but for the first of every n cases."""
    seen: dict[str, int] = defaultdict(int)
    for item in items:
        if mark := item.get_closest_marker("one_in"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                yield item
            seen[test] += 1
