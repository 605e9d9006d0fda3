"""Protected files, and the report of vacuum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.model.reports import Outcome, Report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Protection:
    """The files of every version that must stay readable."""

    #: All files of this version and of every later one are protected ...
    oldest_version: int
    #: ... up to this one, the latest when the log was read.
    newest_version: int
    #: Distinct keys below the root: data files and their deletion vectors, change data and others.
    keys: pa.ChunkedArray
    #: The same for pinned versions.
    pinned_keys: pa.ChunkedArray
    #: File names that the table references by absolute path or URL. Such a path may point into the
    #: table although its string does not show it.
    names: pa.ChunkedArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forgotten:
    """Files that commits removed, according to the table's log."""

    #: Distinct keys below the root.
    keys: pa.ChunkedArray
    #: The last version whose removed files are included; None if there is nothing new.
    last_version: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """Files to be deleted, and the retention rule applied."""

    #: Version to which the rule was applied.
    version: int
    files: int
    bytes: int
    #: None: the table's own.
    asked_retention: timedelta | None
    allows_short_retention: bool
    #: Whether to commit entries to the log: auto, always or never.
    entries: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionOutcome:
    """The result of a deletion."""

    files: int
    directories: int
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Retained files by reason; each counts once, by the first reason that applies."""

    #: Written within the retention: a writer may be about to commit them.
    young: int = 0
    #: Referenced by a version within the retention, or read by a pinned stream.
    needed: int = 0
    #: Referenced only by a pinned version or a declared clone.
    pinned: int = 0
    #: Written by a running lakehand operation that may still commit them.
    running: int = 0

    @property
    def total(self) -> int:
        return self.young + self.needed + self.pinned + self.running


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A pin, tag, branch or run that needs more than the retention keeps."""

    #: Name of the pin, the tag or the branch, or the id of the run.
    name: str
    #: `version`, `stream` or `clone`; `tag` for a version with a tag of the table, `run` for the
    #: first version that a running lakehand operation reads, `branch` for a branch of the table
    #: that shares files with it.
    kind: str
    #: The protected version, or the first of the protected versions; null for a clone, and for a
    #: branch of a branch.
    version: int | None = None
    #: URL of the stream or the clone.
    uri: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumReport(Report):
    """Report of a vacuum: files found, quarantined and deleted."""

    #: The operation.
    operation: str = "vacuum"
    #: `committed`: files were quarantined or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: The latest version when the log was read.
    version: int
    #: The oldest version that stays readable in full.
    oldest_version: int
    #: Age in seconds above which unreferenced files are deleted.
    retention_seconds: float
    #: `full`: storage was listed; `lite`: only files that commits removed were considered.
    mode: str = "full"
    #: Data files examined.
    files_scanned: int = 0
    #: Files that are referenced or too recent.
    files_retained: int = 0
    #: Retained files by reason: young, needed, pinned and running.
    kept: Kept = field(default_factory=Kept)
    #: Active pins, and what each protects.
    holders: tuple[Holder, ...] = ()
    #: Objects under the root that are not data of the table; they are never touched.
    files_ignored: int = 0
    #: Files quarantined earlier whose grace period has not ended.
    files_waiting: int = 0
    #: Uncommitted files of dead runs, deleted now.
    files_swept: int = 0
    #: Files quarantined now: they keep their paths until the grace period ends. In a dry run: would
    #: be.
    files_quarantined: int = 0
    #: Their size.
    bytes_quarantined: int = 0
    #: Files deleted now. In a dry run: would be.
    files_deleted: int = 0
    #: Their size.
    bytes_freed: int = 0
    #: Files released by `--undo`.
    files_undone: int = 0
    #: Empty directories that were removed.
    directories_removed: int = 0
    #: Id of the quarantine that was started or undone now, for `--undo`; null if none was.
    quarantine_id: str | None = None
    #: Whether nothing was changed.
    dry_run: bool = False
    #: Files that would be quarantined or deleted; only in a dry run.
    files_to_delete: tuple[str, ...] = ()
    #: Files that could not be deleted; the others were.
    files_failed: int = 0
    #: The first 1,000 of them, each with its error, and other errors.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Duration of the call.
    duration_ms: float
