"""Kill a process at a named step of its work, and keep the list of steps that tests kill at."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from lakehand.observe.steps import Step, listen
from support.forks import TIMEOUT_SECONDS, run_forked

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names of the tests that kill a process at a step. `kill_at` fills it when a test is imported.
KILL_TESTS: dict[Step, list[str]] = defaultdict(list)

TASK_STEPS = (
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.TASK_RECORDED,
)
COMMIT_STEPS = (
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
)
END_STEPS = (Step.RUN_CLOSED, Step.RUN_CLEANED)
#: All that a run which rewrites files comes by, in their order.
REWRITE_STEPS = (Step.RUN_STARTED, *TASK_STEPS, *COMMIT_STEPS, *END_STEPS)


def kill_at(*steps: Step) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each of `steps`, as its argument `step`, and register it as kill test."""

    def register(test: Callable[..., None]) -> Callable[..., None]:
        for step in steps:
            KILL_TESTS[step].append(f"{test.__module__}.{test.__qualname__}")
        mark = pytest.mark.parametrize("step", steps, ids=[step.value for step in steps])
        return mark(test)

    return register


def run_and_kill(step: Step, function: Callable[..., Any], *args: Any, occurrence: int = 1) -> None:
    """Run `function(*args)` in a process of its own that dies by SIGKILL when it reaches `step`.

    Fails if the process ends in any other way, so a step that is never reached is noticed.
    `function` is a function of a module; it and `args` are pickled.
    """
    done = run_forked(_run_until, step, occurrence, function, args)
    if done.returncode != -signal.SIGKILL:
        raise AssertionError(f"not killed at {step} (exit {done.returncode}):\n{done.said}")


def _run_until(
    step: Step, occurrence: int, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    listen(_die_at(step, occurrence))
    function(*args)


def run_to_end(function: Callable[..., Any], *args: Any) -> None:
    """Run `function(*args)` in a new process and fail if it does not succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "support.crash", pickle.dumps((function, args)).hex()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"failed with exit {done.returncode}:\n{done.stderr}")


def _die_at(step: Step, occurrence: int) -> Callable[[Step], None]:
    left = occurrence

    def listener(reached: Step) -> None:
        nonlocal left
        left -= reached is step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def main() -> None:
    function, args = pickle.loads(bytes.fromhex(sys.argv[1]))
    function(*args)


if __name__ == "__main__":
    main()
