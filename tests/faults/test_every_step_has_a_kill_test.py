from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from lakehand.observe.steps import Step, reached
from support.crash import KILL_TESTS, run_and_kill, run_to_end


@pytest.mark.parametrize("step", list(Step))
def test_every_step_has_a_kill_test(step):
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(file.stem)

    assert KILL_TESTS[step], f"no test in tests/faults is marked @kill_at({step!r})"


def reach_prepared_and_leave(mark: str) -> None:
    reached(Step.COMMIT_PREPARED)
    Path(mark).touch()


def test_a_process_is_killed_at_the_step_and_no_later(tmp_path):
    run_and_kill(Step.COMMIT_PREPARED, reach_prepared_and_leave, str(tmp_path / "mark"))

    assert not (tmp_path / "mark").exists()


def test_a_step_that_is_never_reached_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match="not killed at commit-put"):
        run_and_kill(Step.COMMIT_PUT, reach_prepared_and_leave, str(tmp_path / "mark"))


def test_a_process_that_is_not_killed_runs_to_its_end(tmp_path):
    run_to_end(reach_prepared_and_leave, str(tmp_path / "mark"))

    assert (tmp_path / "mark").exists()
