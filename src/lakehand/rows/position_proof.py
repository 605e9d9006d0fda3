"""The proof for files that stay as they are: their rows are told by position, and none is read.

No byte of such a file changes. So what readers will see of it is what they saw, less the rows that
were to go, exactly if the positions that storage hides afterwards are those that it hid before
together with those that were to go. Both are read from storage; the rows need not be.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.prove.evidence import check_footers, prove_positions, sum_of_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakehand.formats.rows import Positions
    from lakehand.formats.worker import FormatWorker, TaskLimits
    from lakehand.model.work import DataFile, Proof

__all__ = ["HiddenFile", "positions_digest", "prove_by_positions"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HiddenFile:
    """A file that loses rows and is not rewritten."""

    file: DataFile
    #: Rows that are to go, ascending.
    positions: Positions
    #: The file as readers will see it; None if all of its rows go, and it with them.
    live: DataFile | None


def prove_by_positions(
    worker: FormatWorker,
    files: Sequence[HiddenFile],
    *,
    staged_rows: int,
    proved_bytes: int,
    limits: TaskLimits,
    subject: str,
) -> Proof:
    """Return the evidence that readers see all rows but those that were to go; else ProofError.

    `staged_rows` is how many the entries to be committed say are left.
    """
    before = worker.deleted_positions([one.file for one in files], limits=limits)
    staying = [one.live for one in files if one.live is not None]
    after = iter(worker.deleted_positions(staying, limits=limits) if staying else ())
    for one, hidden in zip(files, before, strict=True):
        rows = worker.count_rows([one.file]) + one.file.deleted_rows
        expected = np.sort(np.concatenate((hidden, one.positions)))
        found = np.arange(rows, dtype=np.int64) if one.live is None else next(after)
        check_footers(_difference(expected, found, rows=rows), subject=one.file.path)
    removed = sum(len(one.positions) for one in files)
    return prove_positions(
        worker.count_rows([one.file for one in files]) - removed,
        staged_rows=staged_rows,
        removed_rows=removed,
        positions_digest=positions_digest(
            (one.file.path, one.positions) for one in files if one.live is not None
        ),
        proved_bytes=proved_bytes,
        subject=subject,
    )


def _difference(expected: Positions, found: Positions, *, rows: int) -> str | None:
    """Say what is wrong unless storage hides these positions of a file of so many rows, no others.

    Both are ascending. Rows that were hidden before are among them, and must not come back.
    """
    is_set = bool(np.all(expected[1:] > expected[:-1]))
    is_inside = not len(expected) or (expected[0] >= 0 and expected[-1] < rows)
    if not (is_set and is_inside):
        return "rows were to be hidden twice, or that the file does not have"
    if np.array_equal(expected, found):
        return None
    differing = len(np.setxor1d(expected, found))
    return f"{len(expected)} rows were to be hidden, {len(found)} are, and {differing} differ"


def positions_digest(places: Iterable[tuple[str, Positions]]) -> str:
    """Return what tells these rows of these files from others, in any order of the files."""
    return sum_of_digests([_digest(path, positions) for path, positions in places])


def _digest(path: str, positions: Positions) -> str:
    found = hashlib.sha256(path.encode(errors="surrogateescape"))
    found.update(b"\0")
    found.update(np.ascontiguousarray(positions, dtype="<i8").tobytes())
    return found.hexdigest()[:32]
