"""Compactions on the session of a runner's host, with tasks that are watched."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from lakehand.planning.plan import Plan
from lakehand.runs.control import RunControl, controlled
from lakehand.table import open_table
from support.watched_tasks import Board, watched_exchanges, watched_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.engine.spark import SparkRunner
    from lakehand.observe import Progress


def compact(runner: SparkRunner, place: Path, board: Board) -> dict[str, Any]:
    """Compact the table with the host's session and return the report as JSON."""
    with watched_tasks(board):
        return open_table(place, spark=runner._session()).compact().to_json()


def compact_as_the_session_says(
    runner: SparkRunner, uri: str, options: dict[str, str]
) -> dict[str, Any]:
    """Compact a table of a store that only the session knows how to reach."""
    session = runner._session()
    for name, value in options.items():
        session.conf.set(name, value)
    try:
        table = open_table(uri, spark=session, engine="spark")
        return table.compact(min_files=2).to_json()
    finally:
        for name in options:
            session.conf.unset(name)


def compact_with_options(runner: SparkRunner, uri: str, options: dict[str, str]) -> dict[str, Any]:
    """Compact a table of a store with these options, in tasks of Spark."""
    table = open_table(uri, spark=runner._session(), engine="spark", storage_options=options)
    return table.compact(min_files=2).to_json()


def compact_and_release(runner: SparkRunner, place: Path, board: Board) -> list[tuple[int, int]]:
    """Release group 1 when progress tells of the first group; return what it told of groups."""
    seen: list[tuple[int, int]] = []

    def note(progress: Progress) -> None:
        if progress.phase == "rewrite":
            seen.append((progress.done, progress.total))
        if seen == [(0, 2), (1, 2)]:
            board.release(1)

    with watched_tasks(board):
        open_table(place, spark=runner._session()).compact(on_progress=note)
    return seen


def compact_until_progress(runner: SparkRunner, place: Path, board: Board) -> None:
    """Stop the compaction when one group is done and the other one waits."""

    def stop(progress: Progress) -> None:
        if progress.done == 1:
            board.wait_for("held", count=1)
            raise InterruptedError(f"{progress.done} of {progress.total}")

    with watched_tasks(board):
        open_table(place, spark=runner._session()).compact(on_progress=stop)


def compact_and_wind_down(runner: SparkRunner, place: Path, board: Board) -> dict[str, Any]:
    """Wind the compaction down when one group is done and the other one waits."""
    control = RunControl()

    def stop(progress: Progress) -> None:
        if progress.phase == "rewrite" and progress.done == 1:
            board.wait_for("held", count=1)
            control.cancel.wind_down()

    with watched_tasks(board), controlled(control):
        table = open_table(place, spark=runner._session())
        return table.compact(on_progress=stop).to_json()


def session_around_compaction(runner: SparkRunner, place: Path) -> list[dict[str, Any]]:
    """Return what a session says of itself, before and after a compaction that was given it."""
    session = runner._session()
    session.conf.set("spark.sql.shuffle.partitions", "7")
    session.addTag("of-the-user")
    described = [_describe(session)]
    open_table(place, spark=session).compact()
    described.append(_describe(session))
    session.removeTag("of-the-user")
    return described


def address(runner: SparkRunner) -> tuple[str, str]:
    """Return URL and token of the Spark Connect server that the session's process started."""
    endpoint = runner._session().client._builder.endpoint
    return f"sc://{endpoint}", os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"]


def _describe(session: Any) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    return {
        "settings": session.conf.getAll,
        "tags": sorted(session.getTags()),
        "is_active": SparkSession.getActiveSession() is session,
        "answer": session.range(5).count(),
    }


def carry_out_stored_plan(runner: SparkRunner, place: Path) -> list[dict[str, Any]]:
    """Compact by a plan that was text in between, verify it, refresh statistics: all as tasks."""
    table = open_table(place, spark=runner._session())
    plan = Plan.from_json(json.loads(json.dumps(table.plan().to_json())))
    compacted = table.compact(plan=plan)
    verified = table.verify(version=compacted.version)
    refreshed = table.statistics(full=True)
    return [report.to_json() for report in (plan, compacted, verified, refreshed)]


def cluster_by_shuffle(runner: SparkRunner, place: Path, by: str) -> dict[str, Any]:
    """Put rows in order by many tasks on the host's session and return the report as JSON."""
    table = open_table(place, spark=runner._session(), target_file_bytes=20_000)
    return table.cluster(by=by, sort_task_bytes=0).to_json()


def watched_cluster(
    runner: SparkRunner, place: Path, board: Board, scratch: Path
) -> dict[str, Any]:
    """Do the same with stages that are watched, and with a directory of its own for their rows."""
    options = {"target_file_bytes": 20_000, "scratch_directory": str(scratch)}
    with watched_exchanges(board):
        table = open_table(place, spark=runner._session(), **options)
        return table.cluster(by="x, y", sort_task_bytes=0).to_json()


def compact_with_profile(
    runner: SparkRunner, uri: str, variables: dict[str, str], board: Board
) -> dict[str, Any]:
    """Compact a table with the AWS profile that `variables` name, here and on the executors."""
    session = runner._session()
    workers = session.sparkContext.environment
    os.environ.update(variables)
    workers.update(variables)
    try:
        with watched_tasks(board):
            options = {"allow_http": "true"}
            table = open_table(uri, spark=session, engine="spark", storage_options=options)
            return table.compact(min_files=2).to_json()
    finally:
        for name in variables:
            del os.environ[name], workers[name]
