"""The groups of a plan, each in a task of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.engine import open_runner
from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.observe import Progress
from lakehand.rewrite.task import RewriteTask

if TYPE_CHECKING:
    from lakehand.engine import CancelToken, TaskOutcome
    from lakehand.engine.base import OnResult
    from lakehand.observe import OnProgress
    from lakehand.rewrite.prepare import Work
    from lakehand.runs import Run
    from lakehand.settings import Settings

__all__ = ["GroupProgress", "rewrite_groups", "write_spec"]

#: Parts of a task's memory that one row group may take: in a file, and as rows before.
_ROW_GROUP_SHARE, _ROWS_SHARE = 16, 10
_MAX_ROW_GROUP_BYTES = 64 * 2**20


def rewrite_groups(
    work: Work, run: Run, *, spark: Any, cancel: CancelToken, on_result: OnResult
) -> list[TaskOutcome]:
    """Rewrite and prove every group of `work`, and return what came of each."""
    task = RewriteTask(
        worker=work.table.worker(work.snapshot),
        run=run,
        spec=write_spec(work.settings),
        limits=TaskLimits.of(work.settings),
        prove=work.settings["prove"],
    )
    payloads = [{"group": group.to_json()} for group in work.groups]
    with open_runner(work.settings, spark=spark) as runner:
        return runner.run(task, payloads, run=run, on_result=on_result, cancel=cancel)


def write_spec(settings: Settings) -> WriteSpec:
    """Return how files are written, the size that a group's own files aim for apart."""
    memory_bytes = settings["task_memory_bytes"]
    return WriteSpec(
        target_file_bytes=settings["target_file_bytes"],
        row_group_bytes=min(memory_bytes // _ROW_GROUP_SHARE, _MAX_ROW_GROUP_BYTES),
        group_memory_bytes=memory_bytes // _ROWS_SHARE,
    )


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
