"""Processes that are ready at once: forked from one that has loaded everything and started nothing.

A warm process imports lakehand and its libraries, and has a single thread, no connection and no
open table. Each call forks it: a copy that begins to work within a few milliseconds, and is killed
like any other process. Importing takes longer than most operations on small tables.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import os
import select
import subprocess
import sys
import threading
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Libraries start threads when they are loaded, which a fork would lose.
_WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
_SOURCE = Path(__file__).parents[2] / "src"
#: Packages of which everything is loaded; modules that lack a library of theirs are left out.
_LOADED = ("lakehand", "campaign.verbs", "campaign.writers", "campaign.power", "support.rows")
#: These start threads, or are not needed by any verb.
_LEFT_OUT = ("lakehand.cli", "lakehand.service", "lakehand.web", "lakehand.spark", "lakehand.sql")
END_SECONDS = 20.0


class ThreadsError(RuntimeError):
    """A process has threads, so that it must not be forked."""


class WarmProcess:
    """The caller's end: `fork` begins a call in a copy of the warm process."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        here, there = socketpair()
        with here, there:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "campaign.warm", str(there.fileno())],
                env={
                    **os.environ,
                    **_WITHOUT_THREADS,
                    **(environment or {}),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
                pass_fds=[there.fileno()],
            )
            self._connection = Connection(here.detach())
        self._lock = threading.Lock()

    def fork(self, function: Callable[..., object], *arguments: object) -> ForkedProcess:
        """Begin a call in a process of its own. Raises ThreadsError."""
        answer = self._ask(("fork", function, arguments))
        if isinstance(answer, str):
            raise ThreadsError(answer)
        return ForkedProcess(self, answer)

    def wait_for(self, pid: int) -> int:
        """Return how a process has ended; it is gone then."""
        status: int = self._ask(("wait", pid))
        return status

    def thread_count(self) -> int:
        count: int = self._ask(("threads",))
        return count

    def _ask(self, question: tuple[Any, ...]) -> Any:
        with self._lock:
            self._connection.send(question)
            return self._connection.recv()

    def close(self) -> None:
        self._connection.close()
        self._process.wait(END_SECONDS)


class ForkedProcess:
    """One copy of a warm process, with the methods of `multiprocessing.Process` that are used."""

    def __init__(self, parent: WarmProcess, pid: int) -> None:
        self._parent, self.pid = parent, pid
        self._ended = select.poll()
        self._descriptor = os.pidfd_open(pid)
        self._ended.register(self._descriptor, select.POLLIN)
        #: As in `multiprocessing`: the negative number of the signal that ended it.
        self.exitcode: int | None = None

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, seconds: float | None = None) -> None:
        if self.exitcode is None and self._has_ended(seconds):
            self.exitcode = os.waitstatus_to_exitcode(self._parent.wait_for(self.pid))
            os.close(self._descriptor)

    def _has_ended(self, seconds: float | None) -> bool:
        until = None if seconds is None else time.monotonic() + max(seconds, 0)
        return bool(self._ended.poll(None if until is None else 1000 * (until - time.monotonic())))


@functools.cache
def warm_process(environment: tuple[tuple[str, str], ...] = ()) -> WarmProcess:
    """Return the warm process with these variables; it ends with this process."""
    made = WarmProcess(dict(environment))
    atexit.register(made.close)
    return made


# The warm process itself


def main(descriptor: int) -> None:
    """Load everything, then fork on request until the other end is closed."""
    _load()
    # Collections of garbage in a copy would write to all of its pages.
    gc.collect()
    gc.freeze()
    connection = Connection(descriptor)
    while True:
        try:
            question, *details = connection.recv()
        except EOFError:
            # Without the end of an interpreter: libraries report what they did not release.
            os._exit(0)
        connection.send(_ANSWERS[question](connection, *details))


def _load() -> None:
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for name in (*_LOADED, *_modules_of_lakehand()):
        if name.startswith(_LEFT_OUT):
            continue
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def _modules_of_lakehand() -> list[str]:
    paths = (path.relative_to(_SOURCE) for path in sorted(_SOURCE.rglob("lakehand/**/*.py")))
    return [
        ".".join(path.with_suffix("").parts)
        for path in paths
        if path.name not in {"__init__.py", "__main__.py"}
    ]


def _fork(
    connection: Connection, function: Callable[..., object], arguments: tuple[object, ...]
) -> int | str:
    if (count := _count_threads()) != 1:
        return f"the warm process has {count} threads"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            connection.close()
            function(*arguments)
            code = 0
        finally:
            os._exit(code)
    return pid


def _wait(_connection: Connection, pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _count_threads(_connection: Connection | None = None) -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208  the fastest


_ANSWERS: dict[str, Callable[..., int | str]] = {
    "fork": _fork,
    "wait": _wait,
    "threads": _count_threads,
}


if __name__ == "__main__":
    main(int(sys.argv[1]))
