"""A cleanup of the log that dies leaves a table that can be read; the next one ends it."""

from __future__ import annotations

import pytest

from lakehand import open_table
from lakehand.observe.steps import Step
from support.aged_tables import commits_in, make_aged_table
from support.crash import kill_at, run_and_kill


def clean(path: str) -> None:
    open_table(path).clean_logs()


def ids(path, **version) -> list[int]:
    return sorted(open_table(path).to_arrow(**version)["id"].to_pylist())


@pytest.mark.parametrize("occurrence", [1, 2, 4])
@kill_at(Step.LOG_STRETCH_DELETED)
def test_a_cleanup_that_is_killed_does_no_harm_and_is_finished_later(tmp_path, step, occurrence):
    path = make_aged_table(tmp_path / "t")
    run_and_kill(step, clean, str(path), occurrence=occurrence)
    assert ids(path) == list(range(10))
    assert ids(path, version=8) == list(range(9))
    clean(str(path))
    assert commits_in(path) == [8, 9]
    assert ids(path) == list(range(10))
