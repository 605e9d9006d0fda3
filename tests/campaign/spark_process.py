"""Verbs on Spark: one driver for all, whose executors and Python workers are killed beneath it."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from campaign.verbs import RUNS, Ended, Place, Process, call_verb, outcome_of
from support.runner_host import RunnerHost

if TYPE_CHECKING:
    from pathlib import Path

    from campaign.rounds import Verb
    from lakehand.engine.spark import SparkRunner

_MASTER = "local-cluster[2,1,1024]"
#: Executors are started again however many of them were killed.
_SESSION = {"spark.deploy.maxExecutorRetries": "-1", "spark.task.maxFailures": "8"}
_END_SECONDS = 600.0
_EXECUTOR, _WORKER = "executor", "Python worker"
_WORKER_SHARE = 0.93
#: In an error without any tasks: it is the driver that has ended, which nothing has killed.
_NO_SESSION = "Spark takes no tasks"
#: Most kills beneath one verb, and the seconds between two of them.
_STRIKES = (1, 3, 6, 12)
_PAUSE_SECONDS = (0.02, 0.6)


def perform(runner: SparkRunner, place: Place, verb: Verb) -> dict[str, Any]:
    """Call a verb in the process of the driver."""

    def call() -> None:
        table = place.open(spark=runner._session(), engine="spark", **RUNS)
        call_verb(table, place, verb)

    return outcome_of(call)


class SparkDriver:
    """The process of the driver, started when it is needed, and again after it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host: RunnerHost | None = None
        self._number = 0
        self.chance = random.Random(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._host is not None:
            self._host.__exit__()

    @property
    def host(self) -> RunnerHost:
        if self._host is None:
            self._number += 1
            folder = self._folder / f"driver-{self._number}"
            folder.mkdir(parents=True)
            self._host = RunnerHost({"master": _MASTER}, folder=folder, session=_SESSION)
        return self._host

    def kill(self) -> None:
        """Kill the driver; what it had started ends with it."""
        assert self._host is not None
        for process in self._host.kill():
            try:
                process.wait(20)
            except psutil.TimeoutExpired:
                process.kill()
        self._host.__exit__()
        self._host = None

    def kill_beneath(self) -> str | None:
        """Kill an executor or a Python worker; return what it was."""
        assert self._host is not None
        found = [
            (role, process)
            for process in psutil.Process(self._host._process.pid).children(recursive=True)
            if (role := _role_of(process)) is not None
        ]
        if not found:
            return None
        workers = [one for one in found if one[0] == _WORKER]
        # An executor takes seconds to start again.
        chosen = workers if workers and self.chance.random() < _WORKER_SHARE else found
        role, process = self.chance.choice(chosen)
        try:
            process.kill()
        except psutil.NoSuchProcess:
            return None
        return role


def _role_of(process: psutil.Process) -> str | None:
    try:
        name, command = process.name(), " ".join(process.cmdline())
    except psutil.Error:
        return None
    # The JVM of the driver has all settings in its command, that of the daemon among them.
    if name == "java":
        return _EXECUTOR if "CoarseGrainedExecutorBackend" in command else None
    return _WORKER if "pyspark.daemon" in command or "spark_daemon" in command else None


class SparkVerb(Process):
    """A verb in the driver: a kill hits something beneath it, or the driver with `tree`."""

    def __init__(self, driver: SparkDriver, place: Place, verb: Verb, _folder: Path) -> None:
        self._driver, self._is_killed = driver, False
        self._lost: list[str] = []
        self._started = time.monotonic()
        driver.host.begin(perform, place, verb)

    def wait(self, seconds: float) -> bool:
        return bool(self._driver.host._connection.poll(seconds))

    def send(self, number: int, *, tree: bool = False) -> bool:
        if number != signal.SIGKILL:
            return False
        if tree:
            self._driver.kill()
            self._is_killed = True
        else:
            self._strike()
        return True

    def _strike(self) -> None:
        """Kill something beneath the verb, a few times while it runs."""
        chance = self._driver.chance
        for _ in range(chance.choice(_STRIKES)):
            lost = self._driver.kill_beneath()
            self._lost += [] if lost is None else [lost]
            if self.wait(chance.uniform(*_PAUSE_SECONDS)):
                return

    def end(self) -> Ended:
        if self._is_killed:
            return Ended(outcome="killed", lost=("driver",))
        lost = tuple(self._lost)
        try:
            told = self._driver.host.answer(seconds=_END_SECONDS)
        except (TimeoutError, EOFError) as error:
            self._driver.kill()
            return Ended(outcome="defect", text=str(error), lost=lost)
        if told["outcome"] == "refused" and _NO_SESSION in told["text"]:
            self._driver.kill()
            return Ended(outcome="defect", text=told["text"], lost=lost)
        return Ended(**told, seconds=time.monotonic() - self._started, lost=lost)
