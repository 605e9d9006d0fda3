"""A process that holds one runner and runs scenarios on it.

Spark sessions of different kinds do not get on within one process, so each has a process of its
own; the tests send functions there and get back what these return or raise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Self

import psutil

from lakehand.engine import Runner, open_runner
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

START_SECONDS = 240
#: Hosts and their workers find the same modules as the tests.
MODULES = os.pathsep.join(filter(None, sys.path))


class RunnerHost:
    """The tests' end: `call(scenario, *args)` runs `scenario(runner, *args)` over there."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        folder: Path,
        session: Mapping[str, str] | None = None,
        worker_path: str | None = None,
    ) -> None:
        self.folder = folder
        self._log = (folder / "host.log").open("w")
        listener = Listener(str(folder / "socket"))
        self._process = subprocess.Popen(
            # In a folder whose modules nobody may import.
            [sys.executable, "-P", "-m", "support.runner_host", str(folder / "socket")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": MODULES},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._connection = listener.accept()
        listener.close()
        self._connection.send((dict(settings), dict(session or {}), worker_path or MODULES))
        self._number = 0

    def call(self, scenario: Callable[..., Any], *args: Any, seconds: float = 120) -> Any:
        self.begin(scenario, *args)
        return self.answer(seconds=seconds)

    def begin(self, scenario: Callable[..., Any], *args: Any) -> None:
        """Start a scenario over there; what the test does meanwhile is its own affair."""
        self._number += 1
        self._connection.send((self._number, scenario, args))

    def answer(self, *, seconds: float = 120) -> Any:
        """Return what the scenario that was begun returns or raises."""
        until, number = time.monotonic() + seconds, 0
        # The answer to a scenario for which a test has not waited long enough may come first.
        while number != self._number:
            if not self._connection.poll(max(until - time.monotonic(), 0)):
                raise TimeoutError(f"no answer after {seconds} seconds:\n{self.log()}")
            number, answer, error = self._connection.recv()
        if error is not None:
            raise error
        return answer

    def kill(self) -> list[psutil.Process]:
        """End the process as a crash would; return those that it had started."""
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        return started

    def log(self) -> str:
        return (self.folder / "host.log").read_text()[-10_000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def main(address: str) -> None:
    connection = Client(address)
    settings, session, worker_path = connection.recv()
    # Read by the JVM when it starts, and handed on to the Python workers.
    os.environ["PYTHONPATH"] = worker_path
    if session:
        os.environ["PYSPARK_SUBMIT_ARGS"] = _submit_arguments(session)
    with open_runner(Settings(settings), read_bytes=0) as runner:
        _serve(connection, runner)


def _submit_arguments(session: Mapping[str, str]) -> str:
    return " ".join(
        [*(f"--conf {name}={value}" for name, value in session.items()), "pyspark-shell"]
    )


def _serve(connection: Connection, runner: Runner) -> None:
    while True:
        try:
            number, scenario, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((number, scenario(runner, *args), None))
        except Exception as error:  # noqa: BLE001  raised again in the test's process
            traceback.print_exc()
            connection.send((number, None, error))


if __name__ == "__main__":
    main(sys.argv[1])
