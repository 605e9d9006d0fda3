"""One group rewritten by moving its row groups byte for byte, and proved before it is reported."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehand.errors import ProofError
from lakehand.model.work import Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.prove.evidence import total_proof
from lakehand.prove.ranges import prove_copied
from lakehand.rewrite.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.formats.worker import CopiedFile
    from lakehand.model.work import DataFile, Proof
    from lakehand.rewrite.task import RewriteTask

__all__ = ["copy_group"]


def copy_group(task: RewriteTask, group: Group) -> GroupResult:
    """Move the row groups of `group` and prove that storage holds them.

    Inputs whose row groups are not worth moving are recoded first, and moved as what came of them.
    Raises NotCopyable before a byte is moved, ProofError if one arrived changed.
    """
    worker, watch = task.worker, Stopwatch(task.run.clock)
    stem = task.run.reserve(group.id, directory=worker.output_directory(group.inputs))
    with _recoded(task, group) as crumbs:
        with watch.measure("write"):
            beside = crumbs.outputs if crumbs else ()
            copies = worker.copy(_moved(group), task.spec_of(group), stem=stem, beside=beside)
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            _check_row_count(group, copies, expected=worker.count_rows(group.inputs))
            proof = _prove(task, copies, crumbs)
    return GroupResult(
        group=group.id,
        method="copy",
        attempt=stem,
        outputs=tuple(copy.staged for copy in copies),
        proof=proof,
        timings=_add(watch.milliseconds(), crumbs.timings if crumbs else {}),
    )


@contextmanager
def _recoded(task: RewriteTask, group: Group) -> Iterator[GroupResult | None]:
    """Recode what the plan does not want moved, into files that vanish behind the block."""
    if not group.recoded:
        yield None
        return
    codec = task.worker.codec_of(_moved(group))
    inputs = tuple(group.inputs[number] for number in group.recoded)
    part = replace(group, inputs=inputs, method="recode", recoded=())
    result = replace(task, spec=replace(task.spec, codec=codec)).recode(part)
    try:
        yield result
    finally:
        task.run.discard([file.path for file in result.outputs])


def _moved(group: Group) -> list[DataFile]:
    recoded = set(group.recoded)
    return [file for number, file in enumerate(group.inputs) if number not in recoded]


def _prove(
    task: RewriteTask, copies: Sequence[CopiedFile], crumbs: GroupResult | None
) -> Proof | None:
    """Prove that all bytes arrived; those of recoded rows were proved to hold them before."""
    store = task.run.store
    ranges = total_proof(
        [
            prove_copied(store, copy.staged.path, copy.copied, expected_rows=copy.staged.rows)
            for copy in copies
        ]
    )
    if crumbs is None or crumbs.proof is None or ranges is None:
        return ranges
    both = total_proof([ranges, crumbs.proof])
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
