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
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names of the tests that kill a process at a step. `kill_at` fills it when a test is imported.
KILL_TESTS: dict[Step, list[str]] = defaultdict(list)

_TIMEOUT_SECONDS = 60


def kill_at(*steps: Step) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each of `steps`, as its argument `step`, and register it as kill test."""

    def register(test: Callable[..., None]) -> Callable[..., None]:
        for step in steps:
            KILL_TESTS[step].append(f"{test.__module__}.{test.__qualname__}")
        mark = pytest.mark.parametrize("step", steps, ids=[step.value for step in steps])
        return mark(test)

    return register


def run_and_kill(step: Step, function: Callable[..., Any], *args: Any, occurrence: int = 1) -> None:
    """Run `function(*args)` in a new process that dies by SIGKILL when it reaches `step`.

    Fails if the process ends in any other way, so a step that is never reached is noticed.
    `function` is a function of a module; it and `args` are pickled.
    """
    done = _run(function, args, step=step, occurrence=occurrence)
    if done.returncode != -signal.SIGKILL:
        raise AssertionError(f"not killed at {step} (exit {done.returncode}):\n{done.stderr}")


def run_to_end(function: Callable[..., Any], *args: Any) -> None:
    """Run `function(*args)` in a new process and fail if it does not succeed."""
    done = _run(function, args, step=None, occurrence=0)
    if done.returncode != 0:
        raise AssertionError(f"failed with exit {done.returncode}:\n{done.stderr}")


def _run(
    function: Callable[..., Any], args: tuple[Any, ...], *, step: Step | None, occurrence: int
) -> subprocess.CompletedProcess[str]:
    work = pickle.dumps((function, args, step, occurrence)).hex()
    environment = os.environ if step is None else unmeasured()
    return subprocess.run(
        [sys.executable, "-m", "support.crash", work],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )


def _die_at(step: Step, occurrence: int) -> Callable[[Step], None]:
    left = occurrence

    def listener(reached: Step) -> None:
        nonlocal left
        left -= reached is step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


def main() -> None:
    function, args, step, occurrence = pickle.loads(bytes.fromhex(sys.argv[1]))
    if step is not None:
        listen(_die_at(step, occurrence))
    function(*args)


if __name__ == "__main__":
    main()
