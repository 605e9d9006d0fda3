"""What is tried on every runner, in the process of its host."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehand.engine import CancelToken, Runner, TaskOutcome
from lakehand.engine.session import find_java
from lakehand.errors import CancelledError, EngineError
from lakehand.runs import Run
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.tasks import double, note_start, record_and_wait, use_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run_tasks(
    runner: Runner, function: Callable[..., Any], payloads: Sequence[dict[str, Any]]
) -> list[TaskOutcome]:
    return runner.run(function, payloads)


def collect_progress(
    runner: Runner, function: Callable[..., Any], payloads: Sequence[dict[str, Any]]
) -> list[TaskOutcome]:
    seen: list[TaskOutcome] = []
    runner.run(function, payloads, on_result=seen.append)
    return seen


def cancel_long_tasks(runner: Runner, folder: str) -> float:
    """Cancel once a task has begun; return how many seconds the runner took to stop."""
    cancel = CancelToken()
    cancelled_at: list[float] = []

    def cancel_when_started() -> None:
        while not any(Path(folder).iterdir()):
            time.sleep(0.05)
        cancelled_at.append(time.monotonic())
        cancel.cancel()

    threading.Thread(target=cancel_when_started, daemon=True).start()
    payloads = [{"number": number, "folder": folder, "seconds": 600} for number in range(4)]
    with contextlib.suppress(CancelledError):
        runner.run(note_start, payloads, cancel=cancel)
        raise AssertionError("not cancelled")
    return time.monotonic() - cancelled_at[0]


def interrupt_from_progress(runner: Runner, folder: str) -> list[str]:
    """Raise from `on_result`; return the names of the tasks that began."""

    def stop(outcome: TaskOutcome) -> None:
        raise InterruptedError(f"seen {outcome.index}")

    payloads = [{"number": number, "folder": folder} for number in range(2)]
    with contextlib.suppress(InterruptedError):
        runner.run(note_start, payloads, on_result=stop)
        raise AssertionError("not interrupted")
    return sorted(path.name for path in Path(folder).iterdir())


def follow_the_ledger(runner: Runner, root: str) -> list[int]:
    """Let the second task wait until the first one's result was reported."""
    run = Run.start(open_store(root), {"groups": []})
    gate = Path(root) / "gate"
    payloads = [
        {"group": 7, "run": run.id, "root": root},
        {"group": 8, "run": run.id, "root": root, "wait_for": str(gate)},
    ]
    seen: list[int] = []

    def note(outcome: TaskOutcome) -> None:
        seen.append(outcome.index)
        gate.touch()

    outcomes = runner.run(record_and_wait, payloads, run=run, on_result=note)
    assert [outcome.result["group"] for outcome in outcomes if outcome.result] == [7, 8]
    return seen


def lose_a_worker_for_good(runner: Runner, root: str) -> list[TaskOutcome]:
    """Let one task record its result while another takes its process down again and again."""
    run = Run.start(open_store(root), {"groups": []})
    first = Path(root) / "first"
    payloads = [
        {"group": 7, "run": run.id, "root": root, "then_touch": str(first)},
        {"group": 8, "run": run.id, "root": root, "wait_for": str(first), "then_die": True},
    ]
    return runner.run(record_and_wait, payloads, run=run)


def explain_secret_work(runner: Any, secret: str) -> tuple[str, bytes, int]:
    """Return Spark's view of work that holds a secret, what is shipped, and the task's answer."""
    from functools import partial

    from pyspark import cloudpickle

    from lakehand.engine.spark import _frame, _Job, versions
    from lakehand.engine.spark_task import pack_work, shipped_function

    function, payloads = partial(use_secret, secret=secret), [{"key": secret}]
    spark = runner._session()
    job = _Job(spark, lambda own: _frame(own, spark, function, payloads))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        job._frame.explain(extended=True)
    while not job.wait(1):
        pass
    work = pack_work(function, payloads, attempts_by_spark=3)
    shipped = cloudpickle.dumps(shipped_function(work, versions=versions()))
    return printed.getvalue(), shipped, job.outcomes[0]["result"]["length"]


def shuffle_and_find_files(runner: Any) -> list[str]:
    """Return the files that Spark has written after a shuffle."""
    spark, started = runner._session(), time.time() - 1
    spark.range(100).repartition(2).count()
    # Where its settings name no other place, which PySpark 4.3 does not tell.
    assert spark.conf.get("spark.local.dir", None) is None
    place = Path(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
    found = [path for path in place.glob("blockmgr-*/**/*") if path.is_file()]
    return [str(path) for path in found if path.stat().st_mtime > started]


def open_a_session_as_users_do(_runner: Any) -> None:
    """Start Spark without what lakehand sets; the runner finds the session, as it is active."""
    from pyspark.sql import SparkSession

    os.environ |= {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    SparkSession.builder.master("local[1]").getOrCreate()


def use_a_session_of_the_user(runner: Any) -> tuple[int, int]:
    """Run on a session that is passed in, then use it again; return both answers."""
    from lakehand.engine import open_runner
    from lakehand.settings import Settings
    from support.tasks import double

    session = runner._session()
    with open_runner(Settings({"engine": "local"}), read_bytes=0, spark=session) as passed:
        first = passed.run(double, [{"number": 21}])[0].result
    assert first is not None
    return first["doubled"], session.range(3).count()


def sessions_after_runs(runner: Any, runs: int) -> list[int]:
    """Return how many sessions wait for jobs after each of several runs."""
    from lakehand.engine import spark

    spark._idle_sessions.clear()
    counts = []
    for number in range(runs):
        runner.run(double, [{"number": number}])
        counts.append(sum(map(len, spark._idle_sessions.values())))
    return counts


def close_and_ask_for_session(runner: Any) -> tuple[bool, bool]:
    """Close the runner; say whether Spark is still active, and whether a task on it is refused."""
    from pyspark.sql import SparkSession

    from lakehand.engine.spark import SparkRunner

    stopped = runner._session()
    runner.close()
    is_active = SparkSession.getActiveSession() is not None
    try:
        [outcome] = SparkRunner(Settings(), spark=stopped).run(double, [{"number": 1}])
    except EngineError:
        return is_active, True
    return is_active, outcome.failure is not None
