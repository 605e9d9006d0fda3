"""The process of a job, as its worker sees it: told of a job, asked, watched and ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.job_main import JobSpec
    from lakehand.service.job_states import Wish

#: Nothing is imported from the current directory, which may be a table's.
COMMAND = (sys.executable, "-P", "-m", "lakehand.service.job_main")
#: How long a process may take to end after it was asked to.
_END_SECONDS = 10.0


#: Numbers of the classes of I/O priority.
_IONICE = {"best-effort": ("-c", "2", "-n", "7"), "idle": ("-c", "3")}


def command_with(nice: int, ionice: str | None) -> tuple[str, ...]:
    """Return the command of a process with a priority, as far as this machine knows of it."""
    prefix: tuple[str, ...] = ()
    if nice and (found := shutil.which("nice")):
        prefix = (found, "-n", str(nice))
    if ionice is not None and (found := shutil.which("ionice")):
        prefix = (*prefix, found, *_IONICE[ionice])
    return (*prefix, *COMMAND)


class ProcessEndedError(Exception):
    """The process of a job has ended before the job, or could not be started."""


class JobProcess:
    """A process that runs one job after the other."""

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        nice: int = 0,
        ionice: str | None = None,
    ) -> None:
        pipe = subprocess.PIPE
        #: A process cannot get a better priority than it was started with.
        self.priority = (nice, ionice)
        try:
            self._process = subprocess.Popen(  # noqa: S603  this Python, and a module of lakehand
                command or command_with(nice, ionice),
                stdin=pipe,
                stdout=pipe,
                text=True,
                start_new_session=True,
            )
        except OSError as error:  # No memory, or too many processes or files.
            raise ProcessEndedError(f"could not be started: {error}") from error
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.jobs = 0
        self._used_at = time.monotonic()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  it is a pipe
        try:
            with self._process.stdout as answers:
                for line in answers:
                    # A process that is killed while it writes leaves a part of a line.
                    with contextlib.suppress(ValueError):
                        self._answers.put(json.loads(line))
        finally:
            self._answers.put(None)

    def begin(self, spec: JobSpec) -> None:
        self.send({"job": spec.to_json()})

    def send(self, document: Mapping[str, Any]) -> None:
        """Tell the process what to do next."""
        self.jobs += 1
        self._used_at = time.monotonic()
        self._send(document)

    @property
    def idle_seconds(self) -> float:
        """How long it has said nothing."""
        return time.monotonic() - self._used_at

    def wish(self, wish: Wish) -> None:
        self._send({"wish": wish})

    def _send(self, document: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        try:
            self._process.stdin.write(json.dumps(document) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # It has ended, which its answers tell.

    def answer(self, timeout: float) -> dict[str, Any] | None:
        """Return the next answer; None if there is none in time."""
        try:
            found = self._answers.get(timeout=timeout)
        except queue.Empty:
            return None
        self._used_at = time.monotonic()
        if found is None:
            raise ProcessEndedError(self._describe_end())
        return found

    def _describe_end(self) -> str:
        code = self._process.wait(_END_SECONDS)
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with {code}"

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_END_SECONDS)
        self._close_input()

    def close(self) -> None:
        """Let the process end; it runs no job."""
        self._close_input()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None  # noqa: S101  it is a pipe
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
