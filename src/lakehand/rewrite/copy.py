"""One group rewritten by moving its row groups byte for byte, and proved before it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ProofError
from lakehand.model.work import Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.prove.evidence import total_proof
from lakehand.prove.ranges import prove_copied
from lakehand.rewrite.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import CopiedFile
    from lakehand.rewrite.task import RewriteTask

__all__ = ["copy_group"]


def copy_group(task: RewriteTask, group: Group) -> GroupResult:
    """Move the row groups of `group` and prove that storage holds them.

    Raises NotCopyable before a byte is written, ProofError if a byte arrived changed.
    """
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    with watch.measure("write"):
        copies = worker.copy(group.inputs, task.spec_of(group), stem=stem)
    reached(Step.TASK_WRITTEN)
    with watch.measure("prove"):
        _check_row_count(group, copies, expected=worker.count_rows(group.inputs))
        proofs = [
            prove_copied(
                task.run.store, copy.staged.path, copy.copied, expected_rows=copy.staged.rows
            )
            for copy in copies
        ]
    return GroupResult(
        group=group.id,
        method="copy",
        attempt=stem,
        outputs=tuple(copy.staged for copy in copies),
        proof=total_proof(proofs),
        timings=watch.milliseconds(),
    )


def _check_row_count(group: Group, copies: Sequence[CopiedFile], *, expected: int) -> None:
    """Compare row groups with what the footers of the inputs count, whichever were copied."""
    copied = sum(copy.staged.rows for copy in copies)
    if copied != expected:
        raise ProofError(
            f"group {group.id} was not copied faithfully: its inputs hold {expected} rows, the row"
            f" groups that were copied {copied}; nothing was changed",
            hint="a file may count its rows wrongly: verify the table",
        )
