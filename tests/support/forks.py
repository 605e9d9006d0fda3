"""Processes that begin with our modules loaded: forks of one that has done nothing but load them.

Loading takes half of the processor's time of a process that is killed at a step, and hundreds are.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable

#: Ample, because how long an end takes says more about the machine than about the code.
TIMEOUT_SECONDS = 200


class Ended(NamedTuple):
    #: As `subprocess` says it: negative for a signal.
    returncode: int
    #: What the process and those that it left behind said on stdout and stderr.
    said: str


class _Request(NamedTuple):
    environment: dict[str, str]
    folder: str
    path: list[str]
    #: The function and its arguments, pickled apart: its module can be found only with `path`.
    work: bytes


class _Parent:
    """The process that is forked, started at the first use and again after a call was broken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def ask(self, request: _Request) -> Ended:
        with self._lock:
            process = self._process = self._process or _start()
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                return pickle.load(process.stdout)
            except BaseException:  # the answer would be taken for that of the next request
                self._end()
                raise

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # Not by closing its stdin: whoever was forked here meanwhile may hold that, too.
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


def _start() -> subprocess.Popen[bytes]:
    environment = {**unmeasured(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Not with `-m`: what is pickled would be of the module `__main__`.
    command = [sys.executable, "-c", "from support.forks import main; main()"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)


_PARENT = _Parent()


def run_forked(function: Callable[..., Any], *args: Any) -> Ended:
    """Run `function(*args)` in a process of its own; wait for it and for all that hold its stderr.

    `function` is a function of a module; it and `args` are pickled. No line of it is counted for
    coverage.
    """
    work = pickle.dumps((function, args))
    return _PARENT.ask(_Request(unmeasured(), str(Path.cwd()), sys.path, work))


def _run(request: _Request) -> Ended:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_the_child(request, writer)
    os.close(writer)
    said = _read_to_end(reader, child)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), said)


def _read_to_end(reader: int, child: int) -> str:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    said = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
            part = pipe.read(2**16)
            if not part:
                return said.decode(errors="replace")
            said += part
    os.kill(child, signal.SIGKILL)
    raise TimeoutError(f"not ended in {TIMEOUT_SECONDS} s:\n{said.decode(errors='replace')}")


def _be_the_child(request: _Request, writer: int) -> NoReturn:
    failed = 1
    try:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.path[:] = request.path
        function, args = pickle.loads(request.work)
        function(*args)
        failed = 0
    except BaseException:  # noqa: BLE001  told to the caller, never to the loop of the parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(failed)


def main() -> None:
    # Children say what they say elsewhere, and what they start must not hold these.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _load()
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(_run(request), answers)
        answers.flush()


def _load() -> None:
    """Load what most of them need. Lance is left out: it does not survive a fork."""
    import lakehand.rewrite.run  # noqa: F401
    import support.compactions
    import support.hot_tables
    import support.sinks  # noqa: F401

    if "lance" in sys.modules:
        raise RuntimeError("lance was loaded by a module of the list above")
