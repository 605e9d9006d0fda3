"""Everything that may be found wrong with a Delta table, by name, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.model.verification import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingKind:
    """One kind of damage."""

    name: str
    meaning: str
    #: What to do about it, for a person.
    hint: str


_BACKUP = "restore the object from a backup"
_HARMLESS = "the table is still readable; `lakehand repair` fixes it"
_LOSS = "`lakehand repair --accept-data-loss` goes back to the newest readable version"
_DROP = "`lakehand repair --accept-data-loss` removes the file from the table"
_ACCEPT = "`lakehand repair --accept-changed-files` accepts the file"
_RESTORE = (
    "`lakehand repair --restore-deleted-rows` keeps the file with all of its rows, including"
    " deleted ones"
)

FINDINGS: Mapping[str, FindingKind] = {
    kind.name: kind
    for kind in (
        FindingKind(
            name="missing_commit",
            meaning="a version is missing from the log, although older and newer ones exist",
            hint=f"{_BACKUP}; else {_LOSS}",
        ),
        FindingKind(
            name="corrupt_commit",
            meaning="a commit cannot be read: it is truncated, not JSON, or inconsistent",
            hint=f"{_BACKUP}; else {_LOSS}",
        ),
        FindingKind(
            name="malformed_commit",
            meaning="a commit can be read, but violates the protocol",
            hint="commits are never changed once they are published; with a checkpoint of a later"
            " version, readers skip it",
        ),
        FindingKind(
            name="wrong_commit_time",
            meaning="the table has in-commit timestamps, and this commit has none, or one that is"
            " not after that of the version before it",
            hint="commits are never changed once they are published; select versions by number, not"
            " by timestamp",
        ),
        FindingKind(
            name="incomplete_log",
            meaning="no version can be read, although the log is not empty",
            hint="restore the oldest commits, or a checkpoint, from a backup",
        ),
        FindingKind(
            name="unknown_feature",
            meaning="the table lists a feature that lakehand does not know",
            hint="lakehand writes nothing to such a table; use the engine that enabled the feature",
        ),
        FindingKind(
            name="wrong_feature",
            meaning="the lists of features contradict each other, or the table uses a feature"
            " that is not listed",
            hint="set the table's properties again with the engine that owns it",
        ),
        FindingKind(
            name="broken_checkpoint",
            meaning="a checkpoint, or a file that it refers to, cannot be read",
            hint="`lakehand repair` rewrites it, if the commits before it still exist",
        ),
        FindingKind(
            name="incomplete_checkpoint",
            meaning="parts of a checkpoint are missing or empty, so that readers ignore it",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="checkpoint_differs",
            meaning="a checkpoint differs from the commits before it",
            hint="`lakehand repair` rewrites it from the commits; --accept-data-loss is needed if"
            " it has files, removals, metadata or transactions that the commits lack",
        ),
        FindingKind(
            name="corrupt_last_checkpoint",
            meaning="the file `_last_checkpoint` cannot be read",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="stale_last_checkpoint",
            meaning="the file `_last_checkpoint` does not refer to the newest valid checkpoint",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="missing_last_checkpoint",
            meaning="there are checkpoints, but no file `_last_checkpoint`",
            hint=_HARMLESS,
        ),
        FindingKind(
            name="wrong_checksum_file",
            meaning="the checksum file of a version (one of the ten newest) does not match the"
            " version, or its version is not in the log",
            hint="delta-spark refuses the table because of it, and the log may have lost something:"
            " compare it with a backup; `lakehand repair` names the option that accepts it",
        ),
        FindingKind(
            name="stale_hadoop_sum",
            meaning="the hidden Hadoop checksum of a file in the log (on local disk) does not match"
            " its bytes",
            hint="delta-spark cannot read the file because of it, and a commit or a checkpoint may"
            " have been changed: compare it with a backup; `lakehand repair` names the option that"
            " accepts it",
        ),
        FindingKind(
            name="wrong_file_checksum",
            meaning="the hidden Hadoop checksum of a data file (on local disk) does not match its"
            " bytes (without `--deep` only the end of the file is compared)",
            hint=f"the file was probably changed after it was committed; {_BACKUP}, or delete the"
            " checksum file if the data file is right",
        ),
        FindingKind(
            name="missing_file",
            meaning="a file of the table does not exist in storage",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="unreachable_file",
            meaning="storage denies access to a file of the table",
            hint="check the permissions of the caller, and the path",
        ),
        FindingKind(
            name="wrong_size",
            meaning="the size of a file differs from the log: it was truncated or changed",
            hint=f"such a file is neither read nor rewritten; {_BACKUP}; else {_ACCEPT}",
        ),
        FindingKind(
            name="unreadable_footer",
            meaning="the footer of a file cannot be read",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_row_count",
            meaning="the row count of a file differs from the log",
            hint=f"it was changed after it was committed; {_BACKUP}; else {_ACCEPT}",
        ),
        FindingKind(
            name="duplicate_file",
            meaning="a file is in the table more than once, so its rows are read more than once",
            hint="it is not known which entry is right; restore an earlier version",
        ),
        FindingKind(
            name="duplicate_entry",
            meaning="a file is listed under several spellings of its path: lakehand reads it once,"
            " other engines more than once",
            hint="`lakehand repair` removes the other entries",
        ),
        FindingKind(
            name="missing_deletion_vector",
            meaning="the deletion vector of a file does not exist in storage",
            hint=f"{_BACKUP}; else {_RESTORE}, or {_DROP}",
        ),
        FindingKind(
            name="bad_deletion_vector",
            meaning="the deletion vector of a file cannot be read, or is not the committed one",
            hint=f"{_BACKUP}; else {_RESTORE}, or {_DROP}",
        ),
        FindingKind(
            name="wrong_deletion_count",
            meaning="the number of deleted rows in the log differs from the deletion vector of a"
            " file, whose checksum is right",
            hint="`lakehand repair` corrects the number in the log",
        ),
        FindingKind(
            name="unreadable_rows",
            meaning="rows of a file cannot be decoded (`--deep`)",
            hint=f"{_BACKUP}; else {_DROP}",
        ),
        FindingKind(
            name="wrong_statistics",
            meaning="values of a file are outside its bounds in the log, or its null counts are"
            " wrong: the file was replaced, or its writer stated wrong statistics"
            " (without `--deep` only footers are compared, and no files with deleted rows)",
            hint=f"compare the file with a backup; {_ACCEPT} and recomputes its statistics",
        ),
        FindingKind(
            name="unreadable_statistics",
            meaning="the statistics of a file are not JSON, or their types do not match its"
            " columns, so that other engines fail to read the table",
            hint="`lakehand repair` recomputes them",
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
