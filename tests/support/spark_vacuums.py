"""Vacuums on the session of a runner's host, with tasks that are watched."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehand.engine.exchange import pack_columns, unpack_columns
from lakehand.engine.spark import SparkRunner
from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.clock import ManualClock
from lakehand.observe.steps import Step, listen
from lakehand.retention import candidates, vacuum_tasks
from lakehand.retention.vacuum import vacuum as vacuum_table
from lakehand.retention.vacuum_tasks import DeleteTask
from lakehand.settings import Settings
from lakehand.storage import open_store
from lakehand.storage.fault_injection import Fault, FaultStore
from lakehand.table import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from support.watched_tasks import Board

#: Tasks have something to do in tables of some thousand files.
SETTINGS = {"grace": "0", "vacuum_tasks_above": 1000, "vacuum_entries": "never"}

#: Tasks that list are numbered from here on, those that delete from 0.
LISTING = 1000


@dataclass(frozen=True, kw_only=True)
class WatchedVacuum:
    """A task of vacuum that tells where it runs; it can be held when it has deleted one half."""

    task: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    board: Board
    #: Whether the first half goes before the task is held.
    begins: bool

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(self.task, DeleteTask):
            number = LISTING + payload["number"]
            self.board.wait_at_hold(number)
            self.board.note("listed", number)
            return self.task(payload)
        files = unpack_columns(payload["files"])
        if self.begins:
            self.task({"files": pack_columns(files.slice(0, files.num_rows // 2))})
        self.board.wait_at_hold(payload["number"])
        result = self.task(payload)
        self.board.note("deleted", payload["number"], tried=result["tried"])
        return result


@contextmanager
def _watched(board: Board, *, begins: bool) -> Iterator[None]:
    original = SparkRunner.run

    def run(self: SparkRunner, function: Any, payloads: Any, **options: Any) -> Any:
        numbered = [{**payload, "number": number} for number, payload in enumerate(payloads)]
        task = WatchedVacuum(task=function, board=board, begins=begins)
        return original(self, task, numbered, **options)

    SparkRunner.run = run
    try:
        yield
    finally:
        SparkRunner.run = original


def vacuum(runner: SparkRunner, place: Path) -> dict[str, Any]:
    """Vacuum with tasks on the host's session and return the report as JSON."""
    return open_table(place, spark=runner._session()).vacuum(**SETTINGS).to_json()


def watched_vacuum(
    runner: SparkRunner, place: Path, board: Board, *, begins: bool = True
) -> dict[str, Any]:
    with _watched(board, begins=begins):
        return vacuum(runner, place)


def hurried_vacuum(
    runner: SparkRunner, place: Path, board: Board, seconds: float
) -> dict[str, Any]:
    """Vacuum with tasks that may delete for so many seconds only."""
    usual = vacuum_tasks._WINDOW_SECONDS
    vacuum_tasks._WINDOW_SECONDS = seconds
    try:
        return watched_vacuum(runner, place, board, begins=False)
    finally:
        vacuum_tasks._WINDOW_SECONDS = usual


def vacuum_with_faults(runner: SparkRunner, place: Path, *faults: Fault) -> dict[str, Any]:
    report = vacuum_table(
        DeltaTable(FaultStore(open_store(place), faults)),
        settings=Settings(SETTINGS),
        spark=runner._session(),
    )
    return report.to_json()


def vacuum_until_batch(runner: SparkRunner, place: Path, board: Board, batch: int) -> None:
    """Vacuum in small batches, and wait for ever when some of them are done."""
    candidates.FILES_AT_A_TIME = 1500
    left = batch

    def count(step: Step) -> None:
        nonlocal left
        left -= step is Step.VACUUM_DELETING
        if left == 0:
            board.hold(batch)
            board.wait_at_hold(batch)

    listen(count)
    vacuum(runner, place)


def vacuum_objects(
    runner: SparkRunner, uri: str, options: Mapping[str, str], board: Board
) -> dict[str, Any]:
    """Vacuum a table of some hundred objects as it will be in a month."""
    clock = ManualClock(datetime.now(UTC) + timedelta(days=30))
    with _watched(board, begins=False):
        report = vacuum_table(
            DeltaTable(open_store(uri, options), clock=clock),
            settings=Settings({**SETTINGS, "vacuum_tasks_above": 20}),
            spark=runner._session(),
            clock=clock,
        )
    return report.to_json()
