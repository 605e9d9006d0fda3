"""The process behind the local runner.

Over a socket that it inherits it gets a pickled function, then payloads, each with its number of
cores, and answers each with one JSON document. It ends when the driver's end of the socket closes,
even in the middle of a task: a driver that was killed leaves nothing running. Between two runs it
waits for a while, and takes on what surrounds the driver when the next one begins.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from lakehand.engine.import_guard import leave_pandas_out
from lakehand.engine.runner_contract import Task, attempt, describe
from lakehand.observe.steps import listen

#: First byte of a message to a worker; a payload follows the number of its cores and a space.
FUNCTION, PAYLOAD, STOP = b"f", b"p", b"s"
#: What a worker is told after a run, and before another one; the latter it answers.
PARK, TAKE = b"w", b"t"
#: Name of a module that tasks will need.
LOAD = b"l"
#: As long as Spark keeps its own; an idle one takes 130 MB.
_PARKED_SECONDS = 60.0
#: How long the deletion of local files may take once no caller waits for the worker.
_LAST_SECONDS = 1.0


def main(descriptor: int) -> None:
    leave_pandas_out()
    sys.unraisablehook = _ignore_exit
    signal.signal(signal.SIGTERM, _leave)
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    function, patience = b"", None
    while (message := _next(inbox, patience))[:1] != STOP:
        kind, content = message[:1], message[1:]
        patience = _PARKED_SECONDS if kind == PARK else None
        if kind == FUNCTION:
            function = content
        elif kind == TAKE:
            _move_to(**json.loads(content))
            connection.send_bytes(TAKE)
        elif kind == LOAD:
            # What fails here fails again in a task, which can say so.
            with suppress(Exception):
                import_module(content.decode())
        elif kind == PAYLOAD:
            cores, _, payload = content.decode().partition(" ")
            answer = _answer(function, payload, cores=int(cores))
            connection.send_bytes(json.dumps(answer).encode())


def run_worker(descriptor: int) -> None:
    """Run tasks until the driver has no more of them, and end the process."""
    code = 0
    try:
        main(descriptor)
    except SystemExit as left:
        code = int(left.code or 0)
    except BrokenPipeError:
        code = 1  # the driver was killed: it needs no answer, and its user no traceback
    # Nothing is left to do; libraries print complaints where an interpreter ends step by step.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _next(inbox: queue.SimpleQueue[bytes], patience: float | None) -> bytes:
    try:
        return inbox.get(timeout=patience)
    except queue.Empty:
        return STOP


def _move_to(*, environment: dict[str, str], directory: str) -> None:
    """Leave nothing of an earlier run that a fresh process would not have."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    tempfile.tempdir = None
    listen(None)


def _receive(connection: Connection, inbox: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            inbox.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST_SECONDS)
        os._exit(1)


def _ignore_exit(unraisable: Any) -> None:
    """Say nothing where the exception of `_leave` is lost, as in a callback of an import."""
    if not isinstance(unraisable.exc_value, SystemExit):
        sys.__unraisablehook__(unraisable)


def _leave(*_: object) -> None:
    """End as by an exception, so that local files are deleted on the way out."""
    # DuckDB prints a traceback where the exception comes in the middle of its import; nothing reads
    # what a worker says from here on.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
    raise SystemExit(1)


def _answer(function: bytes, payload: str, *, cores: int) -> dict[str, Any]:
    try:
        return attempt(_load(function), json.loads(payload), cores=cores)
    except Exception as error:  # noqa: BLE001  the driver decides what an unexpected error means
        return {"error": describe(error)}


@lru_cache(maxsize=1)
def _load(function: bytes) -> Task:
    task: Task = pickle.loads(function)  # noqa: S301  written by our own driver
    return task
