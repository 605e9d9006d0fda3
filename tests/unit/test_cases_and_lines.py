"""Which cases of a test `make test` runs, and of which it counts the lines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support import line_counts
from support.cases_in_turn import not_in_turn
from support.line_counts import LineCounts


def case(step, rewrite):
    return SimpleNamespace(
        nodeid=f"test_kills[{step}-{rewrite}]",
        callspec=SimpleNamespace(params={"rewrite": rewrite, "step": step}),
        get_closest_marker=lambda name: pytest.mark.in_turn("rewrite").mark,
    )


def test_every_step_is_met_by_one_value_and_values_take_turns():
    cases = [case(step, rewrite) for step in "abcd" for rewrite in ("compact", "cluster")]
    later = list(not_in_turn(cases))
    chosen = [item.nodeid for item in cases if item not in later]
    assert chosen == [
        "test_kills[a-compact]",
        "test_kills[b-cluster]",
        "test_kills[c-compact]",
        "test_kills[d-cluster]",
    ]


class Measured:
    """Coverage of a process, as far as `LineCounts` asks for it."""

    def __init__(self):
        self.is_on = True
        self.lines = set()
        self._collector = SimpleNamespace(data={"a.py": self.lines})

    def stop(self):
        self.is_on = False

    def start(self):
        self.is_on = True


def traced(monkeypatch, names, lines):
    """Return for each test by these names, which reaches that line, whether it was traced."""
    measured, counts = Measured(), LineCounts()
    monkeypatch.setattr(line_counts, "_current", lambda: measured)
    found = []
    for name, line in zip(names, lines, strict=True):
        with counts.watch(SimpleNamespace(nodeid=name)):
            found.append(measured.is_on)
            measured.lines.add(line)
    assert measured.is_on
    return found


@pytest.fixture(autouse=True)
def two_in_vain(monkeypatch):
    monkeypatch.setattr(line_counts, "MOST_CASES_IN_VAIN", 2)


def test_cases_after_some_in_a_row_without_a_new_line_are_not_traced(monkeypatch):
    names = [f"test_a[{number}]" for number in range(6)]
    assert traced(monkeypatch, names, [1, 1, 2, 1, 2, 3]) == [True] * 5 + [False]


def test_tests_without_parameters_and_other_tests_are_traced(monkeypatch):
    names = ["test_a[0]", "test_a[1]", "test_a[2]", "test_a[3]", "test_b[0]", "test_c"]
    assert traced(monkeypatch, names, [1] * 6) == [True, True, True, False, True, True]
