"""Verifications on the session of a runner's host, with tasks for a handful of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from lakehand.assess import structure_check
from lakehand.engine.spark import SparkRunner
from lakehand.table import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from support.watched_tasks import Board


@dataclass(frozen=True, kw_only=True)
class NotedTask:
    """A task that notes on a board where it runs, and can be held before it begins."""

    task: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    board: Board

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        self.board.wait_at_hold(payload["number"])
        self.board.note(type(self.task).__name__, payload["number"])
        return self.task(payload)


def verify_deeply(runner: SparkRunner, place: Path, board: Board) -> dict[str, Any]:
    """Verify a table, one file a task, and return what was found."""
    original = SparkRunner.run

    def run(self: SparkRunner, function: Any, payloads: Any, **options: Any) -> Any:
        numbered = [{**payload, "number": number} for number, payload in enumerate(payloads)]
        return original(self, NotedTask(task=function, board=board), numbered, **options)

    small = {"_FILES_HERE": 0, "_FILES_PER_TASK": 1}
    with patch.object(SparkRunner, "run", run), patch.multiple(structure_check, **small):
        return open_table(place, spark=runner._session()).verify(deep=True).to_json()
