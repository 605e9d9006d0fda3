"""Where tasks run: on Spark, or in processes of this machine. One contract for both.

Importing this package starts nothing and imports no PySpark.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import TYPE_CHECKING, Any

from lakehand.engine.inline import HERE
from lakehand.engine.local import LocalRunner
from lakehand.engine.runner_contract import CancelToken, Runner, TaskOutcome, is_pyspark_installed
from lakehand.errors import RefusedError
from lakehand.model.quantities import format_bytes
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.reports import EngineName
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = [
    "CancelToken",
    "LocalRunner",
    "Runner",
    "TaskOutcome",
    "choose_engine",
    "is_spark_asked_for",
    "open_runner",
]

_logger = get_logger(__name__)

#: Bytes that are copied in the time in which one byte is decoded, encoded and proved; measured: 20.
_MOVED_SHARE = 16
_WHERE: Mapping[EngineName, str] = {"spark": "on Spark", "local": "in processes of this machine"}


def open_runner(
    settings: Settings,
    *,
    read_bytes: int,
    moved_bytes: int = 0,
    spark: Any = None,
    store: Store | None = None,
    inline_bytes: int = 0,
) -> Runner:
    """Return the runner for tasks that read and copy this much of `store`, for use in `with`.

    For little work no Spark is started unless the caller asks for it, and for no more than
    `inline_bytes` no other process, unless the caller asks for processes. A session passed in is
    used and never stopped. A session of the runner is started for its first tasks and stopped at
    the end. Tasks on a table in memory run in this process, because no other has access to it.
    """
    if store is not None and store.is_in_process:
        _require_no_spark(settings, store)
        return HERE
    engine = choose_engine(settings, read_bytes=read_bytes, moved_bytes=moved_bytes, spark=spark)
    size = read_bytes + moved_bytes
    is_small = inline_bytes > 0 and size <= inline_bytes
    is_inline = engine == "local" and settings.engine == "auto" and is_small
    where = "in this process" if is_inline else _WHERE[engine]
    fields = {"engine": engine, "read_bytes": read_bytes, "moved_bytes": moved_bytes}
    message = "Tasks that read %s run %s"
    log_event(_logger, logging.INFO, "engine_chosen", message, format_bytes(size), where, **fields)
    if engine == "local":
        return HERE if is_inline else LocalRunner()
    from lakehand.engine.spark import SparkRunner

    return SparkRunner(settings, spark=spark)


def _require_no_spark(settings: Settings, store: Store) -> None:
    if settings.engine == "spark" or settings.master or settings.remote:
        raise RefusedError(
            f"{store.url} is in the memory of this process, where Spark's tasks cannot reach it",
            feature="memory",
            table=store.url,
            hint="leave out engine, master and remote: its tasks run in this process",
        )


def choose_engine(
    settings: Settings, *, read_bytes: int, moved_bytes: int = 0, spark: Any = None
) -> EngineName:
    """Return the engine for tasks that read and copy this many bytes."""
    if is_spark_asked_for(settings, spark=spark):
        return "spark"
    is_much = read_bytes + moved_bytes // _MOVED_SHARE > settings.spark_above_bytes
    if not is_much or settings.engine == "local":
        return "local"
    if not is_pyspark_installed():
        _note_missing_spark(read_bytes + moved_bytes)
        return "local"
    return "spark"


@functools.cache  # once per process and amount
def _note_missing_spark(size: int) -> None:
    message = (
        "Tasks that read %s run in processes of this machine, because PySpark is not installed"
        " (pip install 'lakehand[spark]'); engine=local, or a higher spark_above_bytes, ends this"
    )
    log_event(_logger, logging.WARNING, "spark_missing", message, format_bytes(size))


def is_spark_asked_for(settings: Settings, *, spark: Any = None) -> bool:
    """Return whether the caller asks for Spark, however little the work is.

    That is where there is a session already, or where a setting says so, or says which Spark.
    """
    if spark is not None or settings.engine == "spark":
        return True
    if settings.engine == "local":
        return False
    is_named = settings.master is not None or settings.remote is not None
    return is_named or _has_active_session()


def _has_active_session() -> bool:
    sessions = sys.modules.get("pyspark.sql")
    return sessions is not None and sessions.SparkSession.getActiveSession() is not None
