"""Start a Spark session where none was passed in."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehand.engine.base import TASK_ATTEMPTS
from lakehand.engine.java import find_java
from lakehand.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.settings import Settings

#: Plain `local[*]` never tries a task again.
DEFAULT_MASTER = f"local[*,{TASK_ATTEMPTS}]"

#: Keeps Python from importing what lies in the current directory, as `python -P` does.
_SAFE_PATH = "PYTHONSAFEPATH"
_OWN = {
    "spark.app.name": "lakehand",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tasks compress what they hand on, where that pays.
    "spark.shuffle.compress": "false",
    # Python workers import nothing from the directory in which they are started.
    f"spark.executorEnv.{_SAFE_PATH}": "1",
}
# Spark hands bytes on and does little else, for a short while: the thorough compiler of Java takes
# more time for that than it saves. What somebody sets as extraJavaOptions comes behind these.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
_ON_ONE_MACHINE = {
    # A machine's own name often resolves to an address that it cannot reach itself on.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.defaultJavaOptions": _JAVA_OPTIONS,
    "spark.executor.defaultJavaOptions": _JAVA_OPTIONS,
    "spark.python.daemon.module": "lakehand.engine.spark_daemon",
}


def open_session(settings: Settings) -> tuple[Any, bool]:
    """Return a Spark session, and whether it is ours to stop.

    The process's active session is used where there is one. Otherwise one is started: on the
    Spark Connect server `remote`, else on `master`, else on this machine.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    remote = settings["remote"]
    if remote is not None:
        if not remote.startswith("sc://"):
            _prepare_jvm(remote)
        return _started(SparkSession.builder.remote(remote)), True
    master = settings["master"] or DEFAULT_MASTER
    _prepare_jvm(master)
    builder = SparkSession.builder.master(master)
    for name, value in {**_OWN, **(_ON_ONE_MACHINE if _is_local(master) else {})}.items():
        builder = builder.config(name, value)
    return _started(builder), True


def _started(builder: Any) -> Any:
    try:
        # A JVM on this machine hands its environment on to the Python workers.
        with _environment(_SAFE_PATH, "1"):
            return builder.getOrCreate()
    except Exception as error:
        # Spark raises what it has: errors of its own, of py4j, of gRPC.
        reason = str(error).partition("\n")[0]
        raise EngineError(
            f"Spark could not be started: {reason}",
            hint="what Spark printed says more; without Spark: --engine local",
        ) from error


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _prepare_jvm(master: str) -> None:
    """Point Spark to Java and to this Python; both are read when the JVM starts."""
    os.environ["JAVA_HOME"] = str(find_java())
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        # On a cluster the user may know better where Python lies.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def setting_of(spark: Any, name: str, default: str) -> str:
    """Return what a session says of a setting of Spark."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(name, default))
    except PySparkException:
        # Some servers of Spark Connect keep their settings to themselves.
        return default
