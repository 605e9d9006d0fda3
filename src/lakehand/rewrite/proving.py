"""How the outputs of a recoded group are proved: by rows read back, or by counts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ProofError
from lakehand.model.work import DataFile, Digest, Group, Proof, StagedFile
from lakehand.prove.digest import Digester
from lakehand.prove.evidence import check_footers, check_same_rows, prove_counted, prove_equal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.worker import Decoding
    from lakehand.rewrite.task import RewriteTask


def prove_outputs(
    task: RewriteTask,
    group: Group,
    outputs: Sequence[StagedFile],
    *,
    before: Digest,
    decoding: Decoding,
) -> Proof:
    """Return the evidence that storage holds the rows of `group`; ProofError if it does not."""
    worker, limits, again, after = task.worker, task.granted_limits(), None, None
    if decoding.reads_inputs_twice and task.prove != "counts":
        with Digester(worker.moved_rows) as digester:
            worker.digest_rows(group.inputs, digester, limits=limits, decoder=decoding.outputs)
            again = digester.result()
    if task.prove != "counts":
        with Digester(worker.moved_rows, threads=limits.threads) as digester:
            worker.digest_staged(outputs, digester, limits=limits, decoder=decoding.outputs)
            after = digester.result()
    return check_outputs(
        task, group, outputs, before=before, again=again, after=after, decoding=decoding
    )


def check_outputs(
    task: RewriteTask,
    group: Group,
    outputs: Sequence[StagedFile],
    *,
    before: Digest | None,
    again: Digest | None,
    after: Digest | None,
    decoding: Decoding,
) -> Proof:
    """Compare what was read, `again` by the other decoder if so, with what was read back."""
    worker, subject = task.worker, f"group {group.id} ({len(group.inputs)} files)"
    check_footers(worker.staged_difference(group.inputs, outputs), subject=subject)
    expected_rows = worker.count_rows(group.inputs)
    if before is None:
        raise ProofError(f"nothing was read of {subject}; nothing was changed")
    if before.rows != expected_rows:
        _name_broken_input(task, group)
    if after is None or task.prove == "counts":
        written = worker.count_rows([_as_live(file) for file in outputs])
        return prove_counted(
            before, expected_rows=expected_rows, written_rows=written, subject=subject
        )
    if again is not None:
        check_same_rows(before, again, subject=subject)
    return prove_equal(
        before,
        after,
        expected_rows=expected_rows,
        proved_bytes=sum(file.bytes for file in outputs),
        subject=subject,
        decoders=decoding.label,
    )


def _name_broken_input(task: RewriteTask, group: Group) -> None:
    """Let Arrow read `group`: it says which file is broken, where DuckDB only misses rows."""
    with Digester(task.worker.moved_rows) as digester:
        limits = task.granted_limits()
        task.worker.digest_rows(group.inputs, digester, limits=limits, decoder="arrow")


def _as_live(file: StagedFile) -> DataFile:
    # Without a size: what storage holds is compared by the proof, which says so itself.
    return DataFile(path=file.path, bytes=0, rows=None)
