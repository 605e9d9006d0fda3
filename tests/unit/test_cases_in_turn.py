"""Which cases of a test `make test` runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.cases_in_turn import not_in_turn


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
