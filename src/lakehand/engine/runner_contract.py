"""The contract of runners: one attempt at one task, and the cores that the task may use."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from lakehand import errors

if TYPE_CHECKING:
    from types import TracebackType

    from lakehand.model.reports import EngineName
    from lakehand.model.work import GroupResult

_granted: ContextVar[int] = ContextVar("granted_cores", default=1)


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreShare:
    """How tasks that run side by side on one machine share its cores.

    Counted where the tasks run, which need not be where they are sent from.
    """

    #: All tasks, those that wait for others included.
    tasks: int
    #: Cores that the engine was given; None: those of the machine.
    cores: int | None = None
    #: Tasks that run at the same time, at most; None: one for each core.
    slots: int | None = None

    def of_task(self, index: int) -> int:
        """Return the cores of one task, at least one; the first, which are the largest, get more.

        So do the last ones, when there are no others left to keep all cores busy.

        >>> [CoreShare(cores=8, tasks=3).of_task(index) for index in range(3)]
        [3, 3, 2]
        >>> [CoreShare(cores=2, tasks=5).of_task(index) for index in range(5)]
        [1, 1, 1, 1, 2]
        """
        cores = self.cores or usable_cores()
        slots = max(1, self.slots or cores)
        place = index % slots
        beside = min(slots, max(1, self.tasks - (index - place)))
        each, left = divmod(cores, beside)
        return max(1, each + (place < left))


def granted_cores() -> int:
    """Return the cores that the engine gave the task that calls; 1 outside of a task."""
    return _granted.get()


@contextmanager
def granting(cores: int) -> Iterator[None]:
    """Let the task inside the block use this many cores."""
    token = _granted.set(cores)
    try:
        yield
    finally:
        _granted.reset(token)


#: A function of a module, or a `functools.partial` of one, from plain JSON to plain JSON. Whatever
#: is secret belongs into the function, not into the payload.
Task = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: Attempts at a task that ends with an unexpected exception, or whose process ends.
TASK_ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOutcome:
    """The outcome of one payload: a result or a failure."""

    #: Position of the payload.
    index: int
    result: Mapping[str, Any] | None = None
    #: `LakehandError.to_json()`.
    failure: Mapping[str, Any] | None = None
    #: How often the task was tried, as far as the runner knows.
    attempts: int = 1


OnResult = Callable[[TaskOutcome], None]


@functools.cache
def is_pyspark_installed() -> bool:
    """Say whether Spark can be used in this process; nothing is imported."""
    try:
        return importlib.util.find_spec("pyspark") is not None
    except ImportError:
        return False


def require_pyspark() -> None:
    """Raise NotInstalledError where PySpark is not installed."""
    if not is_pyspark_installed():
        raise errors.NotInstalledError(
            "PySpark is not installed",
            hint="install it with: pip install 'lakehand[spark]'; without Spark: --engine local",
        )


class CancelToken:
    """Asks tasks to stop, from any thread: at once, or after those that have begun."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._winding_down = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def wind_down(self) -> None:
        """Ask operations that commit part by part to begin no further part."""
        self._winding_down.set()

    @property
    def is_winding_down(self) -> bool:
        return self._winding_down.is_set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise errors.CancelledError("stopped on request; nothing was committed")


class Ledger(Protocol):
    """What a runner needs of the run that its tasks belong to."""

    @property
    def id(self) -> str: ...

    def results(self, *, known: Collection[int] = ()) -> Iterable[GroupResult]:
        """Return the results that tasks have recorded so far, but for groups in `known`."""
        ...

    def has_repeated_attempts(self) -> bool:
        """Say whether the same was tried twice."""
        ...

    def expect_stragglers(self) -> None:
        """Note that tasks which were given up may still write."""
        ...


class Runner(Protocol):
    """Runs a function over payloads, each in a separate task."""

    @property
    def engine(self) -> EngineName: ...

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
        """Run `function` on every payload and return the outcomes in the order of the payloads.

        Tasks start in that order. A LakehandError becomes a failure in the outcome and is not
        tried again; any other exception, or the death of the process, is tried up to three times
        and then becomes a TaskFailedError there. One failure does not stop the others.

        `on_result` gets every outcome once, as early as the runner knows it; with a `run` that is
        when the result is in its ledger. If it raises, all tasks are stopped. CancelledError
        after `cancel.cancel()`. A runner that cannot wait until stopped tasks have ended says so
        in the ledger of `run`.

        With `may_wind_down`, tasks that have not begun after `cancel.wind_down()` are left out of
        what is returned.
        """
        ...

    def close(self) -> None:
        """Give back what the runner started."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def group_of(payload: Mapping[str, Any]) -> int | None:
    """Return the number of the group that a payload is about, None if it is about none.

    A payload is a group as JSON, or holds one, or its number, under `group`.
    """
    group = payload.get("group", payload)
    number = group.get("id") if isinstance(group, Mapping) else group
    return number if isinstance(number, int) else None


def failed_for_good(index: int, reason: str, *, attempts: int) -> TaskOutcome:
    """Return the outcome of a task that no further attempt would help."""
    times = "once" if attempts == 1 else f"{attempts} times"
    error = errors.TaskFailedError(
        f"task {index} failed {times}: {reason}", task=index, attempts=attempts
    )
    return TaskOutcome(index=index, failure=error.to_json(), attempts=attempts)


def results_of(outcomes: Sequence[TaskOutcome]) -> list[Mapping[str, Any]]:
    """Return the results of all tasks; the first failure is raised."""
    for outcome in outcomes:
        if outcome.failure is not None:
            raise errors.error_from_json(outcome.failure)
    return [outcome.result or {} for outcome in outcomes]


def describe(error: BaseException) -> str:
    """Return an unexpected exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def attempt(
    function: Callable[..., Mapping[str, Any]], *arguments: Any, cores: int = 1
) -> dict[str, Any]:
    """Call `function`, which may use `cores` threads; return its `result` or typed `failure`.

    Other exceptions pass through: the runner decides whether to retry.
    """
    try:
        with granting(cores):
            result = dict(function(*arguments))
    except errors.LakehandError as error:
        return {"failure": json.loads(json.dumps(error.to_json(), default=str))}
    # A result that is not plain JSON is an error of the task, found here on every runner alike.
    return {"result": json.loads(json.dumps(result))}
