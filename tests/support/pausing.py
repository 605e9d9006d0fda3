"""Stop a process at named steps of its work (SIGSTOP) and let it go on later (SIGCONT)."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any, Self

from lakehand.observe.steps import Step, listen

if TYPE_CHECKING:
    from collections.abc import Callable

#: Ample, because how long it takes says more about the machine than about the code.
_TIMEOUT_SECONDS = 200


class PausedProcess:
    """Runs `function(*args)` in a new process, which stops itself at each of `steps` in turn.

    A step may be given with the number of the occurrence that counts.
    """

    def __init__(
        self, steps: list[tuple[Step, int]], function: Callable[..., Any], *args: Any
    ) -> None:
        work = pickle.dumps((steps, function, args)).hex()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.pausing", work],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)
            raise AssertionError(f"ended without a stop:\n{self._process.communicate()[1]}")

    def proceed(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> str | None:
        """Let it run to its end; return the name of the error it ended with, None if none."""
        self.proceed()
        _, stderr = self._process.communicate(timeout=_TIMEOUT_SECONDS)
        if self._process.returncode == 0:
            return None
        return stderr.strip().splitlines()[-1].removeprefix("ERROR ")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def _stop_at(steps: list[tuple[Step, int]]) -> Callable[[Step], None]:
    waiting = list(steps)
    seen = 0

    def listener(reached: Step) -> None:
        nonlocal seen
        if not waiting or reached is not waiting[0][0]:
            return
        seen += 1
        if seen == waiting[0][1]:
            seen = 0
            waiting.pop(0)
            os.kill(os.getpid(), signal.SIGSTOP)

    return listener


def main() -> None:
    steps, function, args = pickle.loads(bytes.fromhex(sys.argv[1]))
    listen(_stop_at(steps))
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001  its name is what the test asks for
        traceback.print_exc()
        sys.stderr.write(f"\nERROR {type(error).__name__}")
        sys.exit(1)


if __name__ == "__main__":
    main()
