"""Where tasks run: on Spark, or in processes of this machine. One contract for both.

Importing this package starts nothing and imports no PySpark.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehand.engine.base import CancelToken, Runner, TaskOutcome
from lakehand.engine.local import LocalRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.settings import Settings

__all__ = [
    "CancelToken",
    "LocalRunner",
    "Runner",
    "TaskOutcome",
    "is_spark_asked_for",
    "open_runner",
    "open_runner_by_size",
]


def open_runner(settings: Settings, *, spark: Any = None) -> Runner:
    """Return the runner that `settings` ask for, to be used in `with`.

    A Spark session passed in is used as it is and never stopped. One that the runner has to start
    is started for its first tasks and closed at the end.
    """
    if spark is None and settings["engine"] == "local":
        return LocalRunner()
    from lakehand.engine.spark import SparkRunner

    return SparkRunner(settings, spark=spark)


@contextmanager
def open_runner_by_size(
    settings: Settings, *, spark: Any = None
) -> Iterator[Callable[[int], Runner]]:
    """Give a function from the bytes that tasks will read to the runner for them.

    For little work no Spark is started, unless somebody asked for it.
    """
    most = -1 if is_spark_asked_for(settings, spark=spark) else settings["spark_above_bytes"]
    with open_runner(settings, spark=spark) as runner, LocalRunner() as here:
        yield lambda size: here if size <= most else runner


def is_spark_asked_for(settings: Settings, *, spark: Any = None) -> bool:
    """Say whether tasks run on Spark because somebody wants it, and not only by default.

    That is where there is a session already, or where a setting says which Spark.
    """
    if spark is None and settings["engine"] == "local":
        return False
    is_set = any(settings.sources[name] != "default" for name in ("engine", "master", "remote"))
    return spark is not None or is_set or _has_active_session()


def _has_active_session() -> bool:
    sessions = sys.modules.get("pyspark.sql")
    return sessions is not None and sessions.SparkSession.getActiveSession() is not None
