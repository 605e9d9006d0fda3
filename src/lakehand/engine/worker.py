"""The process behind the local runner.

Over a socket that it inherits it gets a pickled function, then payloads, each with its number of
cores, and answers each with one JSON document. It ends when the driver's end of the socket closes,
even in the middle of a task: a driver that was killed leaves nothing running.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import threading
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from lakehand.engine.attempt import attempt
from lakehand.engine.base import describe

if TYPE_CHECKING:
    from lakehand.engine.base import Task

#: First byte of a message to a worker; a payload follows the number of its cores and a space.
FUNCTION, PAYLOAD, STOP = b"f", b"p", b"s"


def main(descriptor: int) -> None:
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    function = b""
    while (message := inbox.get())[:1] != STOP:
        if message[:1] == FUNCTION:
            function = message[1:]
        else:
            cores, _, payload = message[1:].decode().partition(" ")
            answer = _answer(function, payload, cores=int(cores))
            connection.send_bytes(json.dumps(answer).encode())


def _receive(connection: Connection, inbox: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            inbox.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


def _answer(function: bytes, payload: str, *, cores: int) -> dict[str, Any]:
    try:
        return attempt(_load(function), payload, cores=cores)
    except Exception as error:  # noqa: BLE001  the driver decides what an unforeseen error means
        return {"error": describe(error)}


@lru_cache(maxsize=1)
def _load(function: bytes) -> Task:
    task: Task = pickle.loads(function)  # noqa: S301  written by our own driver
    return task
