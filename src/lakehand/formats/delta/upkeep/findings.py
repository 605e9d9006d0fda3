"""Everything that may be found wrong with a Delta table, by name, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.model.verification import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FINDINGS", "FindingKind", "finding"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingKind:
    """One kind of damage."""

    name: str
    meaning: str
    #: What to do about it, for a person.
    hint: str


_BACKUP = "bring the object back from a backup"
_HARMLESS = "the table reads as before; `lakehand repair` sets it right"
_LOSS = "`lakehand repair --accept-data-loss` goes back to the newest version that can be read"
_DROP = "`lakehand repair --accept-data-loss` takes the file out of the table"

FINDINGS: Mapping[str, FindingKind] = {
    kind.name: kind
    for kind in (
        FindingKind(
            name="missing_commit",
            meaning="a version is not in the log, though older and newer ones are",
            hint=f"{_BACKUP}; else {_LOSS}",
        ),
        FindingKind(
            name="corrupt_commit",
            meaning="a commit cannot be read: it is cut off, no JSON, or contradicts itself",
            hint=f"{_BACKUP}; else {_LOSS}",
        ),
        FindingKind(
            name="malformed_commit",
            meaning="a commit can be read, but breaks rules on which other engines rely",
            hint="commits are never changed once they are there; a checkpoint of a later version"
            " lets readers pass it by",
        ),
        FindingKind(
            name="wrong_commit_time",
            meaning="the table keeps the time of each version in its commit, and this one has none,"
            " or one that is not after the version before it",
            hint="commits are never changed once they are there; ask for versions by number and"
            " not by time",
        ),
        FindingKind(
            name="incomplete_log",
            meaning="no version can be read, though the log is not empty",
            hint="bring the oldest commits, or a checkpoint, back from a backup",
        ),
        FindingKind(
            name="unknown_feature",
            meaning="the table lists a feature that lakehand does not know",
            hint="lakehand writes nothing to such a table; use the engine that enabled the feature",
        ),
        FindingKind(
            name="wrong_feature",
            meaning="the lists of features contradict each other, or the table uses one that they"
            " leave out",
            hint="set the table's properties again with the engine that owns it",
        ),
        FindingKind(
            name="broken_checkpoint",
            meaning="a checkpoint, or a file that it names, cannot be read",
            hint="`lakehand repair` writes it again, if the commits before it are there",
        ),
        FindingKind(
            name="incomplete_checkpoint",
            meaning="parts of a checkpoint are missing or empty, so that readers pass it by",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="checkpoint_differs",
            meaning="a checkpoint says something else than the commits that it stands for",
            hint="`lakehand repair` writes it again from the commits",
        ),
        FindingKind(
            name="corrupt_last_checkpoint",
            meaning="the pointer to the newest checkpoint cannot be read",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="stale_last_checkpoint",
            meaning="the pointer names no sound checkpoint, or not the newest one",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="missing_last_checkpoint",
            meaning="there are checkpoints, and no pointer to the newest one",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="wrong_checksum_file",
            meaning="the checksum file of a version says something else than the version",
            hint="delta-spark refuses the table because of it; `lakehand repair` sets it aside",
        ),
        FindingKind(
            name="stale_hadoop_sum",
            meaning="the hidden checksum of a file in the log, as Hadoop keeps it on local disk, is"
            " of other bytes",
            hint="delta-spark cannot read the file because of it; `lakehand repair` sets it aside",
        ),
        FindingKind(
            name="missing_file",
            meaning="storage does not have a file of the table",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="unreachable_file",
            meaning="storage does not let lakehand look at a file of the table",
            hint="look at the rights of the caller, and whether the path can be right",
        ),
        FindingKind(
            name="wrong_size",
            meaning="a file has another size than the table says: it was cut off, or changed",
            hint=f"{_BACKUP}; other engines read it by the size in the log, and fail",
        ),
        FindingKind(
            name="unreadable_footer",
            meaning="a file has no footer that can be read",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_row_count",
            meaning="a file holds another number of rows than the table says",
            hint=f"it was changed since it was committed; {_BACKUP}",
        ),
        FindingKind(
            name="duplicate_file",
            meaning="a file is in the table more than once, so its rows are read more than once",
            hint="nobody can say which entry is right; restore a version from before",
        ),
        FindingKind(
            name="missing_deletion_vector",
            meaning="storage does not have the list of deleted rows of a file",
            hint=f"{_BACKUP}; else {_DROP}, because nobody knows which rows were deleted",
        ),
        FindingKind(
            name="bad_deletion_vector",
            meaning="the list of deleted rows of a file cannot be read, or is another one",
            hint=f"{_BACKUP}; else {_DROP}, because nobody knows which rows were deleted",
        ),
        FindingKind(
            name="unreadable_rows",
            meaning="rows of a file cannot be decoded (`--deep`)",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_statistics",
            meaning="rows of a file lie outside the bounds that the table has for it, or nulls are"
            " counted wrongly, so that readers skip rows (`--deep`)",
            hint="`lakehand repair --deep` computes them anew",
        ),
    )
}


def finding(
    name: str,
    message: str,
    *,
    path: str | None = None,
    version: int | None = None,
    expected: object = None,
    found: object = None,
    rows: int | None = None,
) -> Finding:
    """Return a finding of one of the kinds above."""
    return Finding(
        name=name,
        path=path,
        version=version,
        expected=None if expected is None else str(expected),
        found=None if found is None else str(found),
        message=message,
        hint=FINDINGS[name].hint,
        rows=rows,
    )
