"""Where tasks run: on Spark, or in processes of this machine. One contract for both.

Importing this package starts nothing and imports no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.engine.base import CancelToken, Runner, TaskOutcome
from lakehand.engine.local import LocalRunner

if TYPE_CHECKING:
    from lakehand.settings import Settings

__all__ = ["CancelToken", "LocalRunner", "Runner", "TaskOutcome", "open_runner"]


def open_runner(settings: Settings, *, spark: Any = None) -> Runner:
    """Return the runner that `settings` ask for, to be used in `with`.

    A Spark session passed in is used as it is and never stopped. One that the runner has to start
    is started for its first tasks and closed at the end.
    """
    if spark is None and settings["engine"] == "local":
        return LocalRunner()
    from lakehand.engine.spark import SparkRunner

    return SparkRunner(settings, spark=spark)
