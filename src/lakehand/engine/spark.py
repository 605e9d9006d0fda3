"""Tasks on Spark, through the DataFrame API alone: local, on a cluster, or over Spark Connect."""

from __future__ import annotations

import json
import logging
import platform
import re
import threading
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from lakehand._version import __version__
from lakehand.engine.runner_contract import (
    CancelToken,
    CoreShare,
    OnResult,
    Task,
    TaskOutcome,
    failed_for_good,
    group_of,
)
from lakehand.engine.session import open_session, setting_of
from lakehand.engine.spark_exchange import (
    change_settings,
    exchange_frame,
    pack_exchange,
    read_exchanged,
    settings_of,
)
from lakehand.engine.spark_task import OUTCOME_SCHEMA, headline, pack_work, shipped_function
from lakehand.errors import EngineError, StorageError, TaskFailedError, WorkerMismatchError
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from lakehand.engine.exchange import Exchanged, Join, Split
    from lakehand.engine.runner_contract import Ledger
    from lakehand.model.reports import EngineName
    from lakehand.settings import Settings

_logger = get_logger(__name__)

_POLL_SECONDS = 0.1
_LEDGER_SECONDS = 2.0
#: Attempts that Spark makes where nothing else is said.
_SPARK_ATTEMPTS = 4
#: Sessions of jobs that have ended, by the session they were made from: a session's first job takes
#: Spark a third longer than its next.
_idle_sessions: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
_LOCAL_MASTER = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?")


class SparkRunner:
    """One Spark task per payload; the session is started when it is first needed."""

    engine: EngineName = "spark"

    def __init__(self, settings: Settings, *, spark: Any = None) -> None:
        self._settings = settings
        self._spark = spark
        #: Ends a session that this runner started.
        self._end_session: Callable[[], None] | None = None

    def run(
        self,
        function: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        run: Ledger | None = None,
        on_result: OnResult | None = None,
        cancel: CancelToken | None = None,
        may_wind_down: bool = False,
    ) -> list[TaskOutcome]:
        """Run `function` on every payload, as `Runner.run` promises."""
        if not payloads:
            return []
        cancel = cancel or CancelToken()
        cancel.raise_if_cancelled()
        results = _Results(payloads, run=run, on_result=on_result)
        spark = self._session()
        job = _Job(spark, lambda own: _frame(own, spark, function, payloads))
        try:
            while not job.wait(_POLL_SECONDS):
                cancel.raise_if_cancelled()
                if may_wind_down and cancel.is_winding_down:
                    # Spark cannot keep what has begun and leave the rest: what is proved counts.
                    job.interrupt()
                    _expect_stragglers(run)
                    return results.known_so_far()
                results.poll_ledger()
        except BaseException:
            job.interrupt()
            _expect_stragglers(run)
            raise
        if job.may_have_stragglers:
            _expect_stragglers(run)
        job.leave_session()
        cancel.raise_if_cancelled()
        return results.complete(job)

    @property
    def is_elsewhere(self) -> bool:
        """Whether tasks may run on other machines: not those of a Spark inside this process."""
        spark = self._session()
        return _is_connect(spark) or _local_master(spark) is None

    def exchange(
        self,
        split: Split,
        payloads: Sequence[Mapping[str, Any]],
        join: Join,
        *,
        parts: int,
        run: Ledger | None,
        cancel: CancelToken,
    ) -> Exchanged:
        """Run both stages as one job, as `Exchanging.exchange` promises."""
        work = pack_exchange(split, payloads, join, parts=parts)
        spark = self._session()
        # With Spark Connect the job uses the caller's session.
        before = settings_of(spark) if _is_connect(spark) else {}
        make_frame = partial(
            exchange_frame, work=work, tasks=len(payloads), parts=parts, versions=versions()
        )
        job = _Job(spark, make_frame)
        try:
            while not job.wait(_POLL_SECONDS):
                cancel.raise_if_cancelled()
        except BaseException:
            job.interrupt()
            _expect_stragglers(run)
            raise
        finally:
            change_settings(spark, before)
        if job.may_have_stragglers or (run is not None and run.has_repeated_attempts()):
            _expect_stragglers(run)
        if job.error is not None:
            mismatch = _mismatch_in(job.error)
            message = f"Spark gave up: {headline(job.error)}"
            raise (mismatch or TaskFailedError(message)) from job.error
        return read_exchanged(job.outcomes, parts=parts, mismatch=_mismatch)

    def _session(self) -> Any:
        if self._spark is None:
            self._spark, self._end_session = open_session(self._settings)
        return self._spark

    def close(self) -> None:
        if self._end_session is not None:
            self._end_session()
        self._spark = self._end_session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _frame(own: Any, spark: Any, function: Task, payloads: Sequence[Mapping[str, Any]]) -> Any:
    """Return the frame whose rows are the outcomes, one task a payload, started in their order."""
    share = share_of(spark, tasks=len(payloads))
    work = pack_work(function, payloads, attempts_by_spark=attempts_of(spark), share=share)
    numbers = own.range(0, len(payloads), 1, len(payloads))
    return numbers.mapInArrow(shipped_function(work, versions=versions()), OUTCOME_SCHEMA)


def _take_session(spark: Any) -> Any:
    """Return a session on the same Spark that no other job has."""
    idle = _idle_sessions.get(spark)
    try:
        return idle.pop() if idle else spark.newSession()
    except IndexError:
        # Another thread was faster.
        return spark.newSession()


class _Job:
    """A Spark job in a separate thread, so that the driver can watch the ledger and stop it."""

    def __init__(self, spark: Any, make_frame: Callable[[Any], Any]) -> None:
        # Without Spark Connect a tag is found again only by the thread that set it, and that one
        # is busy. There the job gets a separate session, on the same Spark, to be interrupted.
        self._tag = f"lakehand-{uuid.uuid4().hex}" if _is_connect(spark) else None
        self._parent = spark
        try:
            self._spark = spark if self._tag else _take_session(spark)
            self.attempts = attempts_of(spark)
            self._is_speculative = setting_of(spark, "spark.speculation", "false") == "true"
            self._frame = make_frame(self._spark)
        except Exception as error:
            # Spark raises errors of Java, of py4j, of the network and of its client.
            raise EngineError(
                f"Spark takes no tasks: {headline(error)}",
                hint="give a session that is not stopped, or none: lakehand starts its own then",
            ) from error
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            if self._tag:
                self._spark.addTag(self._tag)
            for row in self._frame.collect():
                self.outcomes[row["index"]] = json.loads(row["outcome"])
        except Exception as error:  # noqa: BLE001  raised by `wait`
            self.error = error

    @property
    def may_have_stragglers(self) -> bool:
        """Say whether attempts may still be at work that Spark has replaced or given up.

        An executor that Spark has lost need not be dead.
        """
        is_replaced = any(outcome.get("attempts", 1) > 1 for outcome in self.outcomes.values())
        return is_replaced or self._is_speculative or self.error is not None

    def wait(self, seconds: float) -> bool:
        """Wait a little; say whether the job has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def leave_session(self) -> None:
        """Let a later job have the session of one that has ended by itself."""
        if not self._tag and self.error is None:
            _idle_sessions.setdefault(self._parent, []).append(self._spark)

    def interrupt(self) -> None:
        """Stop the job and wait until it has stopped."""
        # Again and again: the job may not have reached Spark when it is first interrupted.
        while not self.wait(_POLL_SECONDS):
            if self._tag:
                self._spark.interruptTag(self._tag)
            else:
                self._spark.interruptAll()


class _Results:
    """Outcomes as they become known: from the ledger while the job runs, from Spark at its end."""

    def __init__(
        self,
        payloads: Sequence[Mapping[str, Any]],
        *,
        run: Ledger | None,
        on_result: OnResult | None,
    ) -> None:
        self._count = len(payloads)
        self._run = run
        self._on_result = on_result
        groups = (group_of(payload) for payload in payloads)
        self._index_of = {group: index for index, group in enumerate(groups) if group is not None}
        self._known: dict[int, TaskOutcome] = {}
        self._known_groups: set[int] = set()
        self._next_poll = time.monotonic() + _LEDGER_SECONDS

    def poll_ledger(self) -> None:
        if self._run is None or time.monotonic() < self._next_poll:
            return
        self._read_ledger()
        self._next_poll = time.monotonic() + _LEDGER_SECONDS

    def _read_ledger(self) -> None:
        if self._run is None:
            return
        for result in self._run.results(known=self._known_groups):
            self._known_groups.add(result.group)
            index = self._index_of.get(result.group)
            if index is not None:
                self._take(TaskOutcome(index=index, result=result.to_json()))

    def _take(self, outcome: TaskOutcome) -> None:
        is_news = outcome.index not in self._known
        self._known[outcome.index] = outcome
        if is_news and self._on_result is not None:
            self._on_result(outcome)

    def known_so_far(self) -> list[TaskOutcome]:
        """Return the outcomes that tasks have recorded, whatever becomes of the others."""
        self._read_ledger()
        return [self._known[index] for index in sorted(self._known)]

    def complete(self, job: _Job) -> list[TaskOutcome]:
        """Return all outcomes of a job that has ended, whichever way."""
        for index, outcome in job.outcomes.items():
            if "mismatch" in outcome:
                raise _mismatch(outcome["mismatch"])
            self._take(TaskOutcome(index=index, **outcome))
        if job.error is not None:
            self._explain_missing(job.error, attempts=job.attempts)
        return [self._known[index] for index in range(self._count)]

    def _explain_missing(self, error: Exception, *, attempts: int) -> None:
        """Spark gave the job up: what is in the ledger counts, the rest has failed."""
        mismatch = _mismatch_in(error)
        if mismatch is not None:
            raise mismatch from error
        self._read_ledger()
        reason = f"Spark gave up: {headline(error)}"
        for index in range(self._count):
            if index not in self._known:
                self._take(failed_for_good(index, reason, attempts=attempts))


def _expect_stragglers(run: Ledger | None) -> None:
    """Spark ends stopped tasks a little later, and those of lost executors possibly never."""
    if run is None:
        return
    try:
        run.expect_stragglers()
    except StorageError as error:
        message = "Files of tasks that still run may be left to vacuum: %s"
        log_event(_logger, logging.WARNING, "stragglers_not_noted", message, error, run=run.id)


def _is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def versions() -> dict[str, str]:
    """Return what driver and executors must have in common."""
    python_version = ".".join(platform.python_version_tuple()[:2])
    return {"lakehand": __version__, "python": python_version}


def require_same_versions(driver: Mapping[str, str]) -> None:
    """Raise WorkerMismatchError on an executor that has other versions than its driver."""
    found = versions()
    if found != driver:
        raise _mismatch(found, driver)


def attempts_of(spark: Any) -> int:
    """Return how often the session's Spark tries a task."""
    master = _local_master(spark)
    if master is not None:
        return int(master.group(2) or 1)
    return int(setting_of(spark, "spark.task.maxFailures", str(_SPARK_ATTEMPTS)))


def share_of(spark: Any, *, tasks: int) -> CoreShare | None:
    """Return how tasks share the cores of a Spark in local mode; None on a cluster.

    Spark counts one core for a task and leaves the others idle where there are fewer tasks.
    """
    master = _local_master(spark)
    if master is None:
        return None
    cores = master.group(1) or "1"
    return CoreShare(tasks=tasks, cores=None if cores == "*" else int(cores))


def _local_master(spark: Any) -> re.Match[str] | None:
    return _LOCAL_MASTER.fullmatch(setting_of(spark, "spark.master", ""))


def _mismatch(
    found: Mapping[str, str], driver: Mapping[str, str] | None = None
) -> WorkerMismatchError:
    ours = driver or versions()
    return WorkerMismatchError(
        f"an executor has lakehand {found['lakehand']} on Python {found['python']}, the driver has"
        f" lakehand {ours['lakehand']} on Python {ours['python']}",
        hint=_remedy(ours),
    )


def _mismatch_in(error: Exception) -> WorkerMismatchError | None:
    """Recognise executors that fail before they can compare versions."""
    text = str(error)
    missing = re.search(r"No module named '([^']+)'", text)
    if missing is not None:
        return WorkerMismatchError(f"an executor lacks {missing.group(1)}", hint=_remedy())
    if "PYTHON_VERSION_MISMATCH" in text:
        message = f"an executor has another Python than the driver: {headline(error)}"
        return WorkerMismatchError(message, hint=_remedy())
    return None


def _remedy(driver: Mapping[str, str] | None = None) -> str:
    ours = driver or versions()
    return (
        f"install lakehand=={ours['lakehand']} into the executors' Python {ours['python']} and let"
        " PYSPARK_PYTHON (or spark.pyspark.python) name that Python before the session starts"
    )
