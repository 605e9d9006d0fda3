"""Worker processes of the local runner, and those that wait for its next run.

A worker takes half a second to start, as long as a small task takes. So one that is not needed any
more is left to the next run of this process, and ends by itself if there is none for a while.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import lakehand
from lakehand.engine.worker import FUNCTION, LOAD, PARK, PAYLOAD, TAKE

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM = "from lakehand.engine import worker; worker.run_worker({})"
_TERMINATE_SECONDS = 1.0
_ANSWER_SECONDS = 5.0

_lock = Lock()
_idle: list[LocalWorker] = []


def take_worker() -> LocalWorker:
    """Return a worker without a task: one that waits, or a new one."""
    while True:
        with _lock:
            worker = _idle.pop() if _idle else None
        if worker is None:
            return LocalWorker()
        if worker.is_like_new() and worker.wake():
            return worker
        worker.kill()


def leave_worker(worker: LocalWorker) -> None:
    """Give a worker back. One that has a task is stopped: nobody waits for its answer."""
    if worker.task is not None or not worker.park():
        worker.kill()
        return
    with _lock:
        _idle.append(worker)


def start_workers_ahead(modules: Sequence[str], *, count: int = 1) -> None:
    """Start workers that load `modules` while their first tasks are still being prepared.

    Those that wait already are among the `count`.
    """
    with _lock:
        waiting = sum(worker.is_alive() for worker in _idle)
    started = [LocalWorker() for _ in range(count - waiting)]
    for worker in started:
        for module in modules:
            worker.load(module)
        leave_worker(worker)


@atexit.register
def end_idle_workers() -> None:
    """End the workers that wait, at once: they have nothing on disk, and nothing to finish."""
    with _lock:
        workers = [worker for worker in _idle if worker.is_ours]
        _idle.clear()
    for worker in workers:
        worker.end_at_once()


class LocalWorker:
    """A process that runs one task at a time."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        #: Task that it works on; None while it is idle.
        self.task: int | None = None
        self._function: bytes | None = None
        self._owner = os.getpid()
        self._path = _search_path()
        self._process = _start_process(theirs, self._path)
        theirs.close()

    def begin(self, task: int, function: bytes, payload: bytes) -> None:
        self.task = task
        try:
            if self._function != function:
                self.connection.send_bytes(FUNCTION + function)
                self._function = function
            self.connection.send_bytes(PAYLOAD + payload)
        except (BrokenPipeError, ConnectionResetError):
            # It died while it was idle. The open task is found unanswered when it is collected.
            return

    def end(self) -> tuple[int, dict[str, Any] | None]:
        """Return the task and its answer; None if the process died."""
        assert self.task is not None  # noqa: S101  only busy workers are waited for
        task, self.task = self.task, None
        try:
            return task, json.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            return task, None

    def describe_end(self) -> str:
        self.connection.close()
        code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    # Between two runs

    @property
    def is_ours(self) -> bool:
        """Whether this process has started it, and not one that it was forked from."""
        return self._owner == os.getpid()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_like_new(self) -> bool:
        """Say whether a new worker would load the same code."""
        return self.is_ours and self._path == _search_path()

    def load(self, module: str) -> None:
        """Let it import `module` before it does anything else."""
        # That it is dead is found out by whoever wants to wake it.
        with suppress(OSError):
            self.connection.send_bytes(LOAD + module.encode())

    def park(self) -> bool:
        """Let it wait for another run, or for its end; False if it is dead."""
        try:
            self.connection.send_bytes(PARK)
        except OSError:
            return False
        return True

    def wake(self) -> bool:
        """Give it the surroundings of this process as they are now; False if it has ended."""
        environment = {**os.environ, "PYTHONPATH": self._path}
        self._function = None
        try:
            surroundings = {"environment": environment, "directory": str(Path.cwd())}
            self.connection.send_bytes(TAKE + json.dumps(surroundings).encode())
            return self.connection.poll(_ANSWER_SECONDS) and self.connection.recv_bytes() == TAKE
        except (EOFError, OSError):
            return False

    # Its end

    def end_at_once(self) -> None:
        """End it without the half second that an interpreter takes to tidy up."""
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def kill(self) -> None:
        if not self.is_ours:
            return
        self._process.terminate()
        try:
            self._process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.connection.close()


def _search_path() -> str:
    """Return where this process imports from, the current directory of a prompt left out."""
    home = str(Path(lakehand.__file__).parents[1])
    return os.pathsep.join(dict.fromkeys([*filter(None, sys.path), home]))


def _start_process(theirs: Connection, search_path: str) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that finds the same modules as this one.

    Not `multiprocessing`: it would import the user's main module again in every worker.
    """
    descriptor = theirs.fileno()
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        # With -P nothing is imported from the current directory, which may be a table's.
        [sys.executable, "-P", "-c", _PROGRAM.format(descriptor)],
        pass_fds=(descriptor,),
        env={**os.environ, "PYTHONPATH": search_path},
        # Ctrl-C is for the driver, which then stops its workers.
        start_new_session=True,
    )
