"""Compactions whose tasks run in their own process, so that it can be stopped or killed there."""

from __future__ import annotations

import json
import os
import signal
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from lakehand.engine import CancelToken, LocalRunner, TaskOutcome
from lakehand.engine.runner_contract import attempt
from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.steps import Step, listen
from lakehand.rewrite import run as rewrite_run
from lakehand.rewrite.execute import rewrite_groups
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.rewrite.run import describe_work
from lakehand.runs import Run, operation
from lakehand.settings import Settings
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lakehand.engine.runner_contract import Task
    from lakehand.model.reports import OperationReport
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock


class InlineRunner:
    """Runs one task after the other in the calling process."""

    engine = "local"

    #: Cores that a task may use.
    cores = 1

    def run(
        self,
        function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        payloads: Sequence[Mapping[str, Any]],
        *,
        on_result: Callable[[TaskOutcome], None] | None = None,
        cancel: CancelToken,
        **_: Any,
    ) -> list[TaskOutcome]:
        outcomes = []
        for index, payload in enumerate(payloads):
            cancel.raise_if_cancelled()
            done = attempt(function, json.loads(json.dumps(payload)), cores=self.cores)
            outcomes.append(TaskOutcome(index=index, **done))
            if on_result is not None:
                on_result(outcomes[-1])
        return outcomes

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class KillingTask:
    """A task that takes its worker process down at a step, as long as `mark` is not there."""

    def __init__(self, function: Task, *, step: Step, mark: Path) -> None:
        self._function = function
        self._step = step
        self._mark = mark

    def __call__(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        listen(self._die)
        return self._function(payload)

    def _die(self, step: Step) -> None:
        if step is self._step and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def open_table(path: str, options: dict[str, str] | None = None) -> DeltaTable:
    return DeltaTable(open_store(path, options))


def leave_dead_run(
    path: Path | str, *, groups: int = 1, rewrite: Rewrite | None = None, **settings: Any
) -> Run:
    """Do what a compaction does until some of its groups are recorded, and then no more."""
    like = rewrite or COMPACT
    chosen = Settings({**like.settings, **settings}, environment={})
    planned = make_plan(open_table(str(path)), chosen, like.request)
    run = Run.start(planned.table.store, describe_work(planned), snapshot=planned.snapshot)
    work = replace(prepare(planned), groups=prepare(planned).groups[:groups])
    call = operation.Call(operation="compact", table=work.table, settings=chosen)
    tasks = operation.Tasks(call, InlineRunner(), run=run)
    rewrite_groups(work, run, tasks, on_result=lambda _outcome: None)
    return run


def compact_inline(
    path: Path | str,
    takeover_after: str = "2m",
    storage_options: dict[str, str] | None = None,
    *,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> OperationReport:
    """Compact the table at `path`; a run that was silent for `takeover_after` is taken over."""
    chosen = Settings({"takeover_after": takeover_after, **settings}, environment={})
    with tasks_inline():
        return rewrite_run.compact(
            open_table(str(path), storage_options),
            settings=chosen,
            on_progress=on_progress,
            clock=clock,
        )


def compact_with_tasks(
    path: Path | str,
    wrap: Callable[[Task], Task],
    *,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> OperationReport:
    """Compact in worker processes, with every task wrapped into something else."""

    class Wrapping(LocalRunner):
        def run(self, function: Task, *args: Any, **options: Any) -> list[TaskOutcome]:
            return super().run(wrap(function), *args, **options)

    chosen = Settings({"takeover_after": "0s", **settings}, environment={})
    with _runner(Wrapping):
        return rewrite_run.compact(open_table(str(path)), settings=chosen, on_progress=on_progress)


def tasks_inline() -> AbstractContextManager[None]:
    """Let all tasks run in this process."""
    return _runner(InlineRunner)


@contextmanager
def _runner(make: Callable[[], Any]) -> Iterator[None]:
    before, operation.open_runner = operation.open_runner, lambda _settings, **_: make()
    try:
        yield
    finally:
        operation.open_runner = before


@dataclass(frozen=True)
class Rewrite:
    """A verb that rewrites files, and how; called with the place of a table, it does so inline."""

    name: str
    request: Request = field(default_factory=Request)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        path: Path | str,
        takeover_after: str = "2m",
        storage_options: dict[str, str] | None = None,
        *,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> OperationReport:
        with tasks_inline():
            return self.on(
                open_table(str(path), storage_options),
                takeover_after=takeover_after,
                on_progress=on_progress,
                **settings,
            )

    def on(
        self, table: DeltaTable, *, on_progress: OnProgress | None = None, **settings: Any
    ) -> OperationReport:
        """Rewrite an open table, by whatever runner is there."""
        verb = rewrite_run.cluster if self.request.operation == "cluster" else rewrite_run.compact
        chosen = Settings({**self.settings, **settings}, environment={})
        return verb(table, settings=chosen, request=self.request, on_progress=on_progress)


_BY_BOTH = Request(operation="cluster", by="amount, id", curve="hilbert")
COMPACT = Rewrite("compact")
CLUSTER = Rewrite("cluster-one-task", _BY_BOTH, {"sort_task_bytes": 2**30})
CLUSTER_BY_MANY_TASKS = Rewrite("cluster-many-tasks", _BY_BOTH, {"sort_task_bytes": 0})
#: Whatever holds for one way to rewrite files holds for all.
EVERY_REWRITE = pytest.mark.parametrize(
    "rewrite", [COMPACT, CLUSTER, CLUSTER_BY_MANY_TASKS], ids=lambda rewrite: rewrite.name
)


def rewrites_in_turn(test: Callable[..., None]) -> Callable[..., None]:
    """Run each case of a test with one way to rewrite files, and in `make soak` with the others."""
    return pytest.mark.in_turn("rewrite")(EVERY_REWRITE(test))
