"""Groups run as tasks, and their results committed in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.engine import TaskOutcome
from lakehand.engine.runner_contract import OnResult, attempt
from lakehand.errors import CancelledError, CommitConflictError, LakehandError, error_from_json
from lakehand.formats.worker import ByteCopyWorker, TaskLimits, WriteSpec
from lakehand.model.quantities import format_count
from lakehand.model.work import Change, Group, GroupResult, Receipt, Replacement
from lakehand.observe import OnProgress, Progress
from lakehand.rewrite.copy import GroupTask, is_only_moved, record_proved
from lakehand.rewrite.report import Done
from lakehand.rewrite.shuffle import shuffle_group
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run, commit_results

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from lakehand.model.reports import EngineName
    from lakehand.rewrite.prepare import Work
    from lakehand.runs.operation import Call, Tasks


def rewrite_groups(work: Work, run: Run, tasks: Tasks, *, on_result: OnResult) -> None:
    """Rewrite and prove every group of `work`; `on_result` gets the outcome of each."""
    worker = work.table.worker(work.snapshot)
    task = RewriteTask(
        worker=worker,
        run=run,
        spec=WriteSpec.of_tasks(work.settings),
        limits=TaskLimits.of(work.settings),
        prove=work.settings.prove,
    )
    most_bytes = work.settings.sort_task_bytes
    alone, shuffled = _by_way(work.groups, most_bytes=most_bytes)
    is_light = any(is_only_moved(work.groups[index]) for index in alone)
    tasks.outcomes(
        GroupTask.of(task, worker) if is_light and isinstance(worker, ByteCopyWorker) else task,
        [{"group": work.groups[index].to_json()} for index in alone],
        on_result=lambda outcome: on_result(replace(outcome, index=alone[outcome.index])),
        may_wind_down=True,
    )
    for index in shuffled:
        if tasks.cancel.is_winding_down:
            break
        on_result(_shuffle(task, work.groups[index], index, tasks))


def _by_way(groups: Sequence[Group], *, most_bytes: int) -> tuple[list[int], list[int]]:
    """Return which groups are rewritten in one task each, and which are sorted by many."""
    is_shuffled = [group.method == "sort" and group.input_bytes > most_bytes for group in groups]
    numbers = range(len(groups))
    alone = [number for number in numbers if not is_shuffled[number]]
    return alone, [number for number in numbers if is_shuffled[number]]


def _shuffle(task: RewriteTask, group: Group, index: int, tasks: Tasks) -> TaskOutcome:
    """Sort one group by many tasks; what they did is recorded by the driver, as one result."""

    def rewrite() -> dict[str, Any]:
        result = shuffle_group(task, group, tasks.runner, cancel=tasks.cancel)
        return record_proved(task.run, result, group)

    outcome = attempt(rewrite)
    tasks.cancel.raise_if_cancelled()
    return TaskOutcome(index=index, **outcome)


class GroupProgress:
    """Tells how many groups are done, weighed by the bytes that they read."""

    def __init__(self, work: Work, tell: OnProgress) -> None:
        self._bytes = [group.input_bytes for group in work.groups]
        self._tell = tell
        self._done = 0
        self._done_bytes = 0
        self.tell()

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


class Batches:
    """Takes the outcome of each group, and commits proved results when a commit is due.

    A batch is judged against everything since the snapshot of the plan. The run's own commits are
    among that and never in its way: no file belongs to two groups.
    """

    def __init__(self, work: Work, run: Run, call: Call, *, ran_on: EngineName) -> None:
        self._work = work
        self._ran_on = ran_on
        self._run = run
        self._watch = call.watch
        self._tell = call.tell
        self._groups: dict[int, Group] = {group.id: group for group in work.groups}
        self._groups |= {item.group.id: item.group for item in work.adopted}
        self._pending = [item.result for item in work.adopted]
        self._last_commit_at = call.clock.monotonic()
        self._results: list[GroupResult] = []
        self._failures: list[dict[str, Any]] = []
        self._conflicts: list[LakehandError] = []
        self._dropped: list[int] = []
        self._receipts: list[Receipt] = []
        self._committed = 0
        self._progress = GroupProgress(work, call.tell)

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions that this run has made."""
        return tuple(receipt.version for receipt in self._receipts)

    def take(self, outcome: TaskOutcome) -> None:
        """Note the outcome of a group; commit if that is due, and tell progress."""
        if outcome.result is None:
            self._failures.append(dict(outcome.failure or {}))
        else:
            self._pending.append(GroupResult.from_json(outcome.result))
            if self._is_due():
                self.commit()
        self._progress.count(outcome)

    def _is_due(self) -> bool:
        most_groups: int | None = self._work.settings.commit_every_groups
        interval: timedelta | None = self._work.settings.commit_every
        waited = self._watch.clock.monotonic() - self._last_commit_at
        return (most_groups is not None and len(self._pending) >= most_groups) or (
            interval is not None and waited >= interval.total_seconds()
        )

    def commit(self) -> None:
        """Commit what is proved and not committed; what lost to other writers is left out."""
        if not self._pending:
            return
        results, self._pending = tuple(self._pending), []
        self._tell_progress()
        try:
            with self._watch.measure("commit"):
                receipt = commit_results(
                    self._run, self._work.table, self._change(results), results=results
                )
        except CommitConflictError as error:
            self._conflicts.append(error)
            self._dropped += [result.group for result in results]
        else:
            self._receipts.append(receipt)
            self._dropped += receipt.dropped
            self._committed += len(results) - len(receipt.dropped)
        self._results += results
        self._last_commit_at = self._watch.clock.monotonic()
        self._tell_progress()

    def _change(self, results: tuple[GroupResult, ...]) -> Change:
        """Return what one commit does: the inputs of every proved group give way to its outputs."""
        snapshot, request, plan = self._work.snapshot, self._work.request, self._work.plan
        return Change(
            kind="rewrite",
            base_version=snapshot.version,
            table_id=snapshot.table_id,
            operation=plan.operation,
            parameters={
                "where": plan.where,
                "automatic": request.automatic,
                "order": plan.order,
                "curve": plan.curve,
                # The table must not change these columns during the run.
                "clusterBy": plan.order if plan.operation == "cluster" else (),
            },
            replacements=tuple(
                Replacement(
                    group=result.group,
                    removes=self._groups[result.group].inputs,
                    adds=result.outputs,
                )
                for result in results
            ),
            erases=request.erases,
            proof={str(result.group): result.proof.to_json() for result in results if result.proof},
        )

    def _tell_progress(self) -> None:
        total = len(self._groups)
        self._tell(Progress(phase="commit", done=self._committed, total=total, unit="groups"))

    def stop(self, error: LakehandError) -> None:
        """Note what ended the run early; raise it if nothing was committed or if it was wanted."""
        if not self._receipts:
            raise error
        if isinstance(error, CancelledError):
            groups = format_count(self._committed, "group")
            raise CancelledError(
                f"stopped on request; {groups} had been committed, in version {self.versions[-1]}"
                " and before",
                hint="the rest of the table is unchanged; run again to continue",
            ) from error
        self._failures.append(error.to_json())

    def done(self) -> Done | None:
        """Return the results of all groups; if none was committed, the first reason is raised.

        None if the work was wound down before any group was committed.
        """
        if not self._receipts and not self._conflicts and not self._failures:
            return None
        if not self._receipts:
            raise (self._conflicts or [error_from_json(self._failures[0])])[0]
        return Done(
            groups=tuple(self._groups.values()),
            results=tuple(self._results),
            failures=tuple(self._failures),
            receipt=_total(self._receipts, self._dropped),
            versions=self.versions,
            adopted={item.group.id for item in self._work.adopted},
            ran_on=self._ran_on if self._work.groups else None,
        )


def _total(receipts: list[Receipt], dropped: list[int]) -> Receipt:
    return Receipt(
        version=receipts[-1].version,
        dropped=tuple(dropped),
        attempts=1 + sum(receipt.attempts - 1 for receipt in receipts),
        files_added=sum(receipt.files_added for receipt in receipts),
        files_removed=sum(receipt.files_removed for receipt in receipts),
    )
