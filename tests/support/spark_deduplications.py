"""Deduplications on the session of a runner's host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.table import open_table
from support.watched_tasks import Board, watched_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.engine.spark import SparkRunner


def deduplicate(runner: SparkRunner, place: Path) -> dict[str, Any]:
    """Keep the latest row of each id, with the host's session; return the report as JSON."""
    table = open_table(place, spark=runner._session())
    return table.deduplicate(key=["id"], keep="latest", order_by="at").to_json()


def watched_deduplicate(runner: SparkRunner, place: Path, board: Board) -> dict[str, Any]:
    """Do the same with tasks that are watched."""
    with watched_tasks(board):
        return deduplicate(runner, place)
