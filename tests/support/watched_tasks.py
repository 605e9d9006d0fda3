"""Rewriting tasks that tell which process runs them, and that can be held in the middle."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from lakehand.engine.runner_contract import granted_cores, group_of
from lakehand.engine.spark import SparkRunner
from lakehand.observe.steps import Step, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from lakehand.engine.exchange import Join, Split

_TIMEOUT_SECONDS = 100


@dataclass(frozen=True, kw_only=True)
class Board:
    """A directory that tasks and tests both see: notes about tasks, and holds on groups."""

    folder: Path

    def hold(self, *groups: int) -> None:
        """Let attempts at these groups wait once their files are written."""
        for group in groups:
            self._hold_of(group).touch()

    def release(self, *groups: int) -> None:
        for group in groups:
            self._hold_of(group).unlink()

    def wait_at_hold(self, group: int) -> None:
        """Note that an attempt waits, and return when it may go on."""
        if self._hold_of(group).exists():
            self.note("held", group)
            _wait_until(lambda: not self._hold_of(group).exists(), f"release of group {group}")

    def note(self, event: str, group: int, **more: Any) -> None:
        place = {"pid": os.getpid(), "java": _java_above(), "cores": granted_cores()}
        name = f"{event}-{group}-{time.monotonic_ns()}-{uuid.uuid4().hex}"
        unfinished = self.folder / f".{name}"
        unfinished.write_text(json.dumps({"group": group, **place, **more}))
        unfinished.rename(self.folder / f"{name}.json")

    def notes(self, event: str) -> list[dict[str, Any]]:
        """Return what was noted about an event, first to last."""
        files = self.folder.glob(f"{event}-*.json")
        in_order = sorted(files, key=lambda path: int(path.name.split("-")[2]))
        return [json.loads(path.read_text()) for path in in_order]

    def wait_for(self, event: str, *, count: int) -> list[dict[str, Any]]:
        """Return the notes about an event once there are so many."""
        _wait_until(lambda: len(self.notes(event)) >= count, f"{count} notes of {event}")
        return self.notes(event)

    def kill_executor_of(self, held: Mapping[str, Any]) -> None:
        """Kill the executor of a task that is held, and wait until its Python worker is gone."""
        os.kill(held["java"], signal.SIGKILL)
        _wait_until(lambda: not psutil.pid_exists(held["pid"]), f"end of worker {held['pid']}")

    def _hold_of(self, group: int) -> Path:
        return self.folder / f"hold-{group}"


@dataclass(frozen=True, kw_only=True)
class WatchedTask:
    """A rewriting task that notes on a board where it runs and what came of it."""

    task: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    board: Board

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        group = group_of(payload)
        if group is None:
            return self.task(payload)
        self.board.note("begun", group)
        listen(lambda step: self.board.wait_at_hold(group) if step is Step.TASK_WRITTEN else None)
        try:
            result = self.task(payload)
        finally:
            listen(None)
        outputs = [file["path"] for file in result.get("outputs", result.get("objects"))]
        self.board.note("done", group, attempt=result.get("attempt"), outputs=outputs)
        return result


#: Holds on tasks of a first stage are above those on parts, which are the groups of a second.
FIRST_SPLIT = 1000


@dataclass(frozen=True, kw_only=True)
class WatchedSplit:
    """A task of a first stage that can be held once it has handed out a piece."""

    split: Split
    board: Board

    def __call__(
        self, payload: Mapping[str, Any]
    ) -> Generator[tuple[int, int, pa.Buffer], None, Mapping[str, Any]]:
        self.board.note("split", payload["number"])
        pieces = self.split(payload)
        yield next(pieces)
        self.board.wait_at_hold(FIRST_SPLIT + payload["number"])
        said = yield from pieces
        return said


@dataclass(frozen=True, kw_only=True)
class WatchedJoin:
    """A task of a second stage that can be held once its files are written."""

    join: Join
    board: Board

    def __call__(self, part: int, pieces: Iterator[tuple[int, pa.Buffer]]) -> Mapping[str, Any]:
        listen(lambda step: self.board.wait_at_hold(part) if step is Step.TASK_WRITTEN else None)
        try:
            result = self.join(part, pieces)
        finally:
            listen(None)
        self.board.note("joined", part)
        return result


@contextmanager
def watched_exchanges(board: Board) -> Iterator[None]:
    """Watch both stages of all that Spark shuffles for this process."""
    original = SparkRunner.exchange

    def exchange(self: SparkRunner, split: Any, payloads: Any, join: Any, **options: Any) -> Any:
        numbered = [{**payload, "number": number} for number, payload in enumerate(payloads)]
        watched = WatchedSplit(split=split, board=board), WatchedJoin(join=join, board=board)
        return original(self, watched[0], numbered, watched[1], **options)

    SparkRunner.exchange = exchange
    try:
        yield
    finally:
        SparkRunner.exchange = original


@contextmanager
def watched_tasks(board: Board) -> Iterator[None]:
    """Watch every task that Spark runs for this process."""
    original = SparkRunner.run

    def run(self: SparkRunner, function: Any, *args: Any, **options: Any) -> Any:
        return original(self, WatchedTask(task=function, board=board), *args, **options)

    SparkRunner.run = run
    try:
        yield
    finally:
        SparkRunner.run = original


def _java_above() -> int | None:
    """Return the JVM that this Python works for: the first ancestor that is a java."""
    parents = psutil.Process().parents()
    return next((parent.pid for parent in parents if parent.name() == "java"), None)


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} in {_TIMEOUT_SECONDS} s")
        time.sleep(0.02)
