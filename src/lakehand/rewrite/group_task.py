"""The function of rewriting tasks where row groups are moved: it loads no more than that needs.

What decodes rows, Arrow and DuckDB among it, takes a fresh process half a second to load, in which
row groups of half a gigabyte are moved.
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from lakehand.formats.worker import NotCopyable
from lakehand.model.work import Group
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.rewrite.copy import copy_group, is_only_moved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.worker import ByteCopyWorker, FormatCopier
    from lakehand.model.work import GroupResult
    from lakehand.rewrite.task import RewriteTask
    from lakehand.runs import Run

_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTask:
    """A function from a group to its result, as JSON. Picklable: it travels to the tasks."""

    copier: FormatCopier
    run: Run
    #: A pickled RewriteTask, for groups that cannot be moved.
    rewriting: bytes

    @classmethod
    def of(cls, task: RewriteTask, worker: ByteCopyWorker) -> Self:
        """Return the light form of `task`, whose worker can copy row groups."""
        copier = worker.copier(task.spec)
        return cls(copier=copier, run=task.run, rewriting=pickle.dumps(task))

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        group = Group.from_json(payload["group"])
        if not is_only_moved(group):
            return self._task().rewrite(group)
        try:
            result = copy_group(self.copier, self.run, group)
        except NotCopyable as reason:
            tell_declined(group, reason)
            return self._task().rewrite(replace(group, method="recode"))
        return record_proved(self.run, result, group)

    def _task(self) -> RewriteTask:
        task: RewriteTask = pickle.loads(self.rewriting)  # noqa: S301  written by our own driver
        return task


def record_proved(run: Run, result: GroupResult, group: Group) -> dict[str, Any]:
    """Put a proved result into the ledger of `run`, and return the one that counts."""
    reached(Step.TASK_PROVED)
    return run.record(result, group=group).to_json()


def tell_declined(group: Group, reason: NotCopyable) -> None:
    """Say why a group is recoded that was to be copied.

    The plan saw footers of some files, the task sees all of them: it has the last word.
    """
    message = "Group %d is recoded: %s"
    log_event(_logger, logging.INFO, "copy_declined", message, group.id, reason)
