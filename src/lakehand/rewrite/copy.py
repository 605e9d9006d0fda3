"""One group rewritten by moving its row groups byte for byte, and proved before it is reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehand.errors import ProofError
from lakehand.model.work import Group, GroupResult
from lakehand.observe.steps import Step, reached
from lakehand.observe.stopwatch import Stopwatch
from lakehand.parquet.footer import collector_paused
from lakehand.prove.copied_ranges import prove_copied
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.worker import CopiedFile, FormatCopier
    from lakehand.model.work import DataFile, Proof
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
    copier: FormatCopier,
    run: Run,
    group: Group,
    *,
    crumbs: GroupResult | None = None,
    expected_rows: int | None = None,
) -> GroupResult:
    """Move the row groups of `group` and prove that storage holds them.

    `crumbs` is what came of inputs that were recoded first: it is moved, too. `expected_rows` is
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
        beside=crumbs.outputs if crumbs else (),
    )
    with watch.measure("write"), collector_paused(), copying as copies:
        reached(Step.TASK_WRITTEN)
        with watch.measure("prove"):
            expected = copies.input_rows if expected_rows is None else expected_rows
            _check_row_count(group, copies.files, expected=expected)
            proof = _prove(run.store, copies.files, crumbs)
    return GroupResult(
        group=group.id,
        method="copy",
        attempt=stem,
        outputs=tuple(copy.staged for copy in copies.files),
        proof=proof,
        timings=_add(watch.milliseconds(), crumbs.timings if crumbs else {}),
    )


def _prove(store: Store, copies: Sequence[CopiedFile], crumbs: GroupResult | None) -> Proof | None:
    """Prove that all bytes arrived; those of recoded rows were proved to hold them before."""
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
