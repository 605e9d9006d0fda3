"""A proof by positions checked again: which rows a commit hid, as deletion vectors say now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakehand.errors import CorruptFileError, LakehandError, ObjectNotFoundError
from lakehand.prove.evidence import digest_text
from lakehand.rows.position_proof import positions_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from lakehand.formats.base import FormatTable, ProvedCommit
    from lakehand.formats.rows import Positions
    from lakehand.formats.worker import FormatWorker, TaskLimits
    from lakehand.model.verification import Agreement, ProofCheck
    from lakehand.model.work import DataFile, Digest

__all__ = ["check_positions_again"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hidden:
    """Positions of each file that are hidden, or why they cannot be read."""

    positions: Sequence[Positions] = ()
    failure: LakehandError | None = None

    @property
    def is_gone(self) -> bool:
        return isinstance(self.failure, ObjectNotFoundError)


def check_positions_again(
    blank: ProofCheck,
    commit: ProvedCommit,
    worker: FormatWorker,
    *,
    table: FormatTable,
    limits: TaskLimits,
    digest: Callable[[Sequence[DataFile]], tuple[Digest | None, LakehandError | None]],
) -> ProofCheck:
    """Hold vectors against the record, and new files, which `digest` reads, against theirs.

    Files that stay are not read: no byte of them was changed by the commit.
    """
    before = {file.path: file for file in commit.inputs}
    staying = [file for file in commit.outputs if file.path in before]
    came = [file for file in commit.outputs if file.path not in before]

    def hidden(files: Sequence[DataFile]) -> _Hidden:
        try:
            return _Hidden(positions=worker.deleted_positions(files, limits=limits))
        except (CorruptFileError, ObjectNotFoundError) as error:
            gone = getattr(error, "path", None) in table.missing_files(files)
            return _Hidden(failure=_not_found(error) if gone else error)

    old, new = hidden([before[file.path] for file in staying]), hidden(staying)
    found, unreadable = digest(came) if came else (None, None)
    if unreadable is not None and new.failure is None:
        new = _Hidden(failure=unreadable)
    proof = commit.proof or {}
    paths = [file.path for file in staying]
    outcome, reason, message = next(_verdicts(proof, paths, old=old, new=new, came=found))
    record = {"equal": True, "differs": False}.get(outcome)
    return replace(blank, outcome=outcome, reason=reason, message=message, matches_record=record)


def _not_found(error: LakehandError) -> ObjectNotFoundError:
    path = getattr(error, "path", None)
    return ObjectNotFoundError(error.message, path=path, operation="verify", hint=error.hint)


def _verdicts(
    proof: Mapping[str, Any],
    paths: Sequence[str],
    *,
    old: _Hidden,
    new: _Hidden,
    came: Digest | None,
) -> Iterator[tuple[Agreement, str | None, str]]:
    """Yield what holds, the most telling first."""
    if new.failure is not None and new.is_gone:
        yield "cannot_compare", "outputs_gone", new.failure.message
    if new.failure is not None:
        yield "differs", "unreadable_output", new.failure.message
    added = _added(proof, came)
    if added is False:
        yield "differs", "record", "the proof is of other rows than the new files hold"
    if old.failure is not None:
        reason = "inputs_gone" if old.is_gone else "unreadable_input"
        yield "cannot_compare", reason, old.failure.message
    went, back = _differences(paths, old.positions, new.positions)
    if back:
        yield "differs", "positions", f"rows of {back[0]} that were hidden are shown again"
    if positions_digest(went) != proof["positions_digest"]:
        yield "differs", "positions", "other rows are hidden than the proof is of"
    if added is None:
        message = "the commit keeps no digest of the new rows that can be compared"
        yield "cannot_compare", "not_recorded", message
    rows = sum(len(positions) for _, positions in went)
    kept = f" and {proof['added_rows']:,} new rows are there" if proof.get("added_rows") else ""
    yield "equal", None, f"{rows:,} rows are hidden as they were to be{kept}"


def _differences(
    paths: Sequence[str], old: Sequence[Positions], new: Sequence[Positions]
) -> tuple[list[tuple[str, Positions]], list[str]]:
    """Return the rows of each file that went, and files of which rows came back."""
    went, back = [], []
    for path, before, after in zip(paths, old, new, strict=True):
        went.append((path, np.setdiff1d(after, before, assume_unique=True)))
        if len(np.setdiff1d(before, after, assume_unique=True)):
            back.append(path)
    return went, back


def _added(proof: Mapping[str, Any], came: Digest | None) -> bool | None:
    """Say whether the new rows are those of the proof; None where nobody can."""
    if not proof.get("added_rows") and came is None:
        return True
    if came is None or came.rows != proof.get("added_rows"):
        return False
    algorithms, engines = (str(proof.get(name)).split(",") for name in ("algorithm", "engine"))
    if not proof.get("added_digest") or came.algorithm not in algorithms:
        return None
    return digest_text(came) == proof["added_digest"] if came.engine in engines else None
