"""What is sent to Spark's executors.

The function, its payloads and all that is secret travel as one compressed pickle inside the
function that Spark ships; the DataFrame holds numbers only, so that neither plan nor web pages nor
event logs of Spark say more.
"""

from __future__ import annotations

import json
import pickle
import zlib
from typing import TYPE_CHECKING, Any

from lakehand.engine.runner_contract import (
    TASK_ATTEMPTS,
    CoreShare,
    Task,
    attempt,
    describe,
    failed_for_good,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa


OUTCOME_SCHEMA = "index long, outcome string"


def pack_work(
    function: Task,
    payloads: Sequence[Mapping[str, Any]],
    *,
    attempts_by_spark: int,
    share: CoreShare | None = None,
) -> bytes:
    """Return everything that tasks need, unreadable in a log.

    `share` is how tasks share the cores of the one machine that they run on; None: on a cluster
    each gets what Spark grants it, and no more.
    """
    from pyspark import cloudpickle

    # Packed one by one, so that a task unpacks its own payload only.
    packed = [zlib.compress(json.dumps(payload).encode(), level=1) for payload in payloads]
    work = (function, packed, attempts_by_spark, share)
    return zlib.compress(cloudpickle.dumps(work), level=1)  # type: ignore[no-untyped-call]


def shipped_function(
    work: bytes, *, versions: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`: numbers of tasks in, their outcomes out.

    It is pickled by value, and names nothing of lakehand before the versions are compared: an
    executor that lacks lakehand can still say so.
    """

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import platform

        import pyarrow as pa

        try:
            from lakehand import __version__ as lakehand_version
        except ImportError:
            lakehand_version = "none"
        python_version = ".".join(platform.python_version_tuple()[:2])
        found = {"lakehand": lakehand_version, "python": python_version}
        for batch in batches:
            for index in batch.column(0).to_pylist():
                if found == versions:
                    from lakehand.engine.spark_task import run_packed

                    outcome = run_packed(work, index)
                else:
                    outcome = {"mismatch": found}
                columns = {"index": [index], "outcome": [json.dumps(outcome)]}
                yield pa.RecordBatch.from_pydict(columns)

    return run_tasks


def run_packed(work: bytes, index: int) -> dict[str, Any]:
    """Run one task on an executor and return its outcome.

    An unexpected exception is raised as long as Spark retries the task. The last attempt returns
    it instead: Spark would otherwise cancel all other tasks too.
    """
    from pyspark import TaskContext

    unpacked = pickle.loads(zlib.decompress(work))  # noqa: S301  written by our own driver
    function, payloads, attempts_by_spark, share = unpacked
    payload = zlib.decompress(payloads[index]).decode()
    context = TaskContext.get()
    first = 1 + (context.attemptNumber() if context is not None else 0)
    granted = context.cpus() if context is not None else 1
    cores = max(granted, share.of_task(index)) if share is not None else granted
    # Where Spark never tries again (plain local mode), the task does so itself.
    last = attempts_by_spark if attempts_by_spark > 1 else TASK_ATTEMPTS
    for number in range(first, max(first, last) + 1):
        try:
            return {**attempt(function, json.loads(payload), cores=cores), "attempts": number}
        except Exception as error:
            if number >= last:
                failure = failed_for_good(index, describe(error), attempts=number).failure
                return {"failure": failure, "attempts": number}
            if attempts_by_spark > 1:
                raise
    raise AssertionError("unreachable")


def headline(error: Exception) -> str:
    """Return the line of a Spark error that says what happened, and that of Python's behind it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent" in line]
    # Of a traceback, what is not indented is the exception; py4j puts Java's behind a colon.
    java = [line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")]
    rest = lines[starts[0] + 1 :] if starts else java
    cause = next((line for line in rest if not line[0].isspace()), "")
    return f"{lines[0].strip()} {cause}".strip()
