"""The groups of a plan, each in a task of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakehand.engine import TaskOutcome
from lakehand.engine.attempt import attempt_call
from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.observe import Progress
from lakehand.rewrite.copy import is_only_moved
from lakehand.rewrite.group_task import GroupTask
from lakehand.rewrite.shuffle import shuffle_group
from lakehand.rewrite.task import RewriteTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.engine import CancelToken, Runner
    from lakehand.engine.base import OnResult
    from lakehand.model.work import Group
    from lakehand.observe import OnProgress
    from lakehand.rewrite.prepare import Work
    from lakehand.runs import Run

__all__ = ["GroupProgress", "rewrite_groups"]


def rewrite_groups(
    work: Work, run: Run, runner: Runner, *, cancel: CancelToken, on_result: OnResult
) -> None:
    """Rewrite and prove every group of `work`; `on_result` is told what came of each."""
    task = RewriteTask(
        worker=work.table.worker(work.snapshot),
        run=run,
        spec=WriteSpec.of_tasks(work.settings),
        limits=TaskLimits.of(work.settings),
        prove=work.settings["prove"],
    )
    most_bytes = work.settings["sort_task_bytes"]
    alone, shuffled = _by_way(work.groups, most_bytes=most_bytes)
    is_light = any(is_only_moved(work.groups[index]) for index in alone)
    runner.run(
        GroupTask.of(task) if is_light else task,
        [{"group": work.groups[index].to_json()} for index in alone],
        run=run,
        on_result=lambda outcome: on_result(replace(outcome, index=alone[outcome.index])),
        cancel=cancel,
    )
    for index in shuffled:
        on_result(_shuffle(task, work.groups[index], index, runner, cancel=cancel))


def _by_way(groups: Sequence[Group], *, most_bytes: int) -> tuple[list[int], list[int]]:
    """Return which groups are rewritten in one task each, and which are sorted by many."""
    is_shuffled = [group.method == "sort" and group.input_bytes > most_bytes for group in groups]
    numbers = range(len(groups))
    alone = [number for number in numbers if not is_shuffled[number]]
    return alone, [number for number in numbers if is_shuffled[number]]


def _shuffle(
    task: RewriteTask, group: Group, index: int, runner: Runner, *, cancel: CancelToken
) -> TaskOutcome:
    """Sort one group by many tasks; what they did is recorded by the driver, as one result."""
    outcome = attempt_call(
        lambda: task.record(shuffle_group(task, group, runner, cancel=cancel), group)
    )
    cancel.raise_if_cancelled()
    return TaskOutcome(index=index, **outcome)


class GroupProgress:
    """Tells how many groups are done, weighed by the bytes that they read."""

    def __init__(self, work: Work, tell: OnProgress) -> None:
        self._bytes = [group.input_bytes for group in work.groups]
        self._tell = tell
        self._done = 0
        self._done_bytes = 0

    def count(self, outcome: TaskOutcome) -> None:
        self._done += 1
        self._done_bytes += self._bytes[outcome.index]
        self.tell()

    def tell(self) -> None:
        progress = Progress(
            phase="rewrite",
            done=self._done,
            total=len(self._bytes),
            unit="groups",
            done_bytes=self._done_bytes,
            total_bytes=sum(self._bytes),
        )
        self._tell(progress)
