"""Rewrites a group by copying its row groups byte for byte, and proves the copy.

Tasks that only copy load no more than this module needs. Loading what decodes rows, Arrow and
DuckDB, takes a new process half a second, in which half a gigabyte of row groups is copied.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import ProofError
from lakehand.formats.worker import ByteCopyWorker, CopiedFile, Copies, NotCopyable, RowGroupCopier
from lakehand.model.work import DataFile, Group, GroupResult, Proof
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Stopwatch
from lakehand.observe.steps import Step, reached
from lakehand.parquet.footer import collector_paused
from lakehand.prove.copied_ranges import prove_copied
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.rewrite.task import RewriteTask
    from lakehand.runs import Run
    from lakehand.storage import Store


def is_only_moved(group: Group) -> bool:
    """Say whether all that the plan wants of a group is to move its row groups."""
    return group.method == "copy" and not group.recoded and not group.native


def moved_inputs(group: Group) -> list[DataFile]:
    """Return the files of a group whose row groups are moved; others are recoded first."""
    recoded = set(group.recoded)
    return [file for number, file in enumerate(group.inputs) if number not in recoded]


def copy_group(
    copier: RowGroupCopier,
    run: Run,
    group: Group,
    *,
    recoded: GroupResult | None = None,
    expected_rows: int | None = None,
) -> GroupResult:
    """Move the row groups of `group` and prove that storage holds them.

    `recoded` is the result of inputs that were recoded first; it is copied, too. `expected_rows` is
    how many rows there must be then; without it, as many as the footers of the inputs count. Files
    are proved while they become durable, which all are on return. Raises NotCopyable before a byte
    is moved, ProofError if one arrived changed.
    """
    watch = Stopwatch(run.clock)
    stem = run.reserve(group.id, directory=copier.output_directory(group.inputs))
    copying = copier.copy(
        moved_inputs(group),
        target_file_bytes=group.target_file_bytes,
        stem=stem,
        beside=recoded.outputs if recoded else (),
    )
    with watch.measure("write"), collector_paused(), copying as copies:
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            expected = copies.input_rows if expected_rows is None else expected_rows
            _check_row_count(group, copies.files, expected=expected)
            proof = _prove(run.store, copies, recoded)
    return GroupResult(
        group=group.id,
        method="copy",
        attempt=stem,
        outputs=tuple(copy.staged for copy in copies.files),
        proof=proof,
        timings=_add(watch.milliseconds(), recoded.timings if recoded else {}),
        moved_in_store_bytes=sum(composed.moved_bytes for composed in copies.compositions),
        streamed_because=copies.streamed_because,
    )


def _prove(store: Store, copies: Copies, recoded: GroupResult | None) -> Proof | None:
    """Prove that all bytes arrived; those of recoded rows were proved to hold them before."""
    if copies.compositions:
        from lakehand.prove.composed_files import check_composed, check_starts  # loads NumPy

        check_composed(copies.compositions, copies.moved)
        check_starts(store, copies.compositions)
    ranges = total_proof(
        [
            prove_copied(store, copy.staged.path, copy.copied, expected_rows=copy.staged.rows)
            for copy in copies.files
        ]
    )
    if recoded is None or recoded.proof is None or ranges is None:
        return ranges
    both = total_proof([ranges, recoded.proof])
    return None if both is None else replace(both, rows=ranges.rows)


def _check_row_count(group: Group, copies: Sequence[CopiedFile], *, expected: int) -> None:
    """Compare row groups with what the footers of the inputs count, whichever were copied."""
    copied = sum(copy.staged.rows for copy in copies)
    if copied != expected:
        raise ProofError(
            f"group {group.id} was not copied faithfully: its inputs hold {expected} rows, the row"
            f" groups that were copied {copied}; nothing was changed",
            hint="a file may count its rows wrongly: verify the table",
        )


def _add(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return dict(Counter(one) + Counter(other))


_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTask:
    """A function from a group to its result, as JSON. Picklable: it travels to the tasks."""

    copier: RowGroupCopier
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
        if is_only_moved(group):
            try:
                with self.run.store.keeping_reads():
                    result = copy_group(self.copier, self.run, group)
            except NotCopyable as reason:
                tell_declined(group, reason)
                payload = {"group": replace(group, method="recode").to_json()}
            else:
                return record_proved(self.run, result, group)
        task: RewriteTask = pickle.loads(self.rewriting)  # noqa: S301  written by our own driver
        return task(payload)


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
