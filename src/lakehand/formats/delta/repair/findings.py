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
_HARMLESS = "the table reads as before; `lakehand repair` fixes it"
_LOSS = "`lakehand repair --accept-data-loss` goes back to the newest version that can be read"
_DROP = "`lakehand repair --accept-data-loss` takes the file out of the table"
_ACCEPT = "`lakehand repair --accept-changed-files` takes the file as it is"
_RESTORE = (
    "`lakehand repair --restore-deleted-rows` keeps the file with all of its rows, deleted ones"
    " among them"
)

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
            hint="`lakehand repair` writes it again from the commits; --accept-data-loss is needed"
            " where it has files, removals, metadata or transactions that the commits lack",
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
            meaning="the checksum file of a version (one of the ten newest) says something else"
            " than the version, or is of a version that is not in the log",
            hint="delta-spark refuses the table because of it, and the log may have lost something:"
            " compare it with a backup; `lakehand repair` says which consent it asks for",
        ),
        FindingKind(
            name="stale_hadoop_sum",
            meaning="the hidden checksum of a file in the log, as Hadoop keeps it on local disk, is"
            " of other bytes",
            hint="delta-spark cannot read the file because of it, and a commit or a checkpoint may"
            " have been changed: compare it with a backup; `lakehand repair` says which consent it"
            " asks for",
        ),
        FindingKind(
            name="wrong_file_checksum",
            meaning="the hidden checksum of a data file, as Hadoop keeps it on local disk, is of"
            " other bytes (without `--deep` only the end of the file is compared)",
            hint=f"the file was probably changed since it was committed; {_BACKUP}, or delete the"
            " checksum file if the data file is right",
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
            hint=f"nothing reads or rewrites such a file; {_BACKUP}; else {_ACCEPT}",
        ),
        FindingKind(
            name="unreadable_footer",
            meaning="a file has no footer that can be read",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_row_count",
            meaning="a file holds another number of rows than the table says",
            hint=f"it was changed since it was committed; {_BACKUP}; else {_ACCEPT}",
        ),
        FindingKind(
            name="duplicate_file",
            meaning="a file is in the table more than once, so its rows are read more than once",
            hint="nobody can say which entry is right; restore a version from before",
        ),
        FindingKind(
            name="duplicate_entry",
            meaning="a file is listed under several spellings of its path: lakehand reads it once,"
            " other engines more than once",
            hint="`lakehand repair` removes the other entries",
        ),
        FindingKind(
            name="missing_deletion_vector",
            meaning="storage does not have the deletion vector of a file",
            hint=f"{_BACKUP}; else {_RESTORE}, or {_DROP}",
        ),
        FindingKind(
            name="bad_deletion_vector",
            meaning="the deletion vector of a file cannot be read, or is another one",
            hint=f"{_BACKUP}; else {_RESTORE}, or {_DROP}",
        ),
        FindingKind(
            name="wrong_deletion_count",
            meaning="the log states another number of deleted rows than the deletion vector of a"
            " file holds, whose bytes have the right checksum",
            hint="`lakehand repair` states the number that the vector holds",
        ),
        FindingKind(
            name="unreadable_rows",
            meaning="rows of a file cannot be decoded (`--deep`)",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_statistics",
            meaning="values of a file lie outside the bounds that the table has for it, or nulls"
            " are counted wrongly: the file was replaced, or its writer stated wrong statistics"
            " (without `--deep` only footers are compared, and no files with deleted rows)",
            hint=f"compare the file with a backup; {_ACCEPT} and computes its statistics again",
        ),
        FindingKind(
            name="unreadable_statistics",
            meaning="the statistics of a file are no JSON, or have values of other types than its"
            " columns, so that other engines fail to read the table",
            hint="`lakehand repair` computes them again",
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
