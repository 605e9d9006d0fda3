"""What must stay in a table's root, and what became of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.model.reports import Report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    import pyarrow as pa

    from lakehand.model.reports import Outcome

__all__ = [
    "Deletion",
    "DeletionOutcome",
    "Forgotten",
    "Holder",
    "Kept",
    "Protection",
    "VacuumReport",
]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Protection:
    """The files of every version that must stay readable."""

    #: All files of this version and of every later one are protected ...
    oldest_version: int
    #: ... up to this one, the newest when the log was read.
    newest_version: int
    #: Keys below the root, distinct: data files and everything that belongs to them.
    keys: pa.ChunkedArray
    #: The same of versions that were named one by one.
    pinned_keys: pa.ChunkedArray
    #: Bare names of files that the table names from outside, by scheme or from the root of a disk.
    #: Such a path may lead back into the table in a way that its text does not show.
    names: pa.ChunkedArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forgotten:
    """Files that versions gave up, as the table's own history tells."""

    #: Keys below the root, distinct.
    keys: pa.ChunkedArray
    #: They are all that was given up until this version; None: there is nothing new to tell.
    last_version: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """What is about to be deleted, and by which rule."""

    #: Version that the rule was applied to.
    version: int
    files: int
    bytes: int
    #: None: the table's own.
    asked_retention: timedelta | None
    allows_short_retention: bool
    #: Whether the table's history shall tell of it: auto, always or never.
    entries: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionOutcome:
    """What became of a deletion."""

    files: int
    directories: int
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Why files stay; each counts once, by the first reason that holds."""

    #: Written within the retention: their writers may be about to commit them.
    young: int = 0
    #: Needed by a version within the retention, or from which a stream still reads.
    needed: int = 0
    #: Needed by a pinned version or a declared clone only.
    pinned: int = 0
    #: Written by a run of lakehand that may still commit them.
    running: int = 0

    @property
    def total(self) -> int:
        return self.young + self.needed + self.pinned + self.running


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Who needs more than the retention keeps, and would break without it."""

    #: Name of the pin, the tag or the branch, or the id of the run.
    name: str
    #: `version`, `stream` or `clone`; `tag` for a version that the table itself keeps by a name,
    #: `run` for one from which on a run of lakehand that is under way reads, `branch` for a branch
    #: of the table, which shares files with it.
    kind: str
    #: The version that is kept, or from which on all are; null for a clone, and for a branch of a
    #: branch.
    version: int | None = None
    #: Where the stream or the clone is.
    uri: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumReport(Report):
    """What a vacuum found, set aside and deleted."""

    #: The verb.
    operation: str = "vacuum"
    #: `committed`: files were set aside or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: The newest version when the log was read.
    version: int
    #: The oldest version that stays readable in full.
    oldest_version: int
    #: Age in seconds from which on files that no version needs are garbage.
    retention_seconds: float
    #: `full`: the files were listed; `lite`: only what the history says was removed.
    mode: str = "full"
    #: Data files that were looked at.
    files_scanned: int = 0
    #: Files that are needed, or too young to tell.
    files_retained: int = 0
    #: Why they stay: counts of young, needed, pinned and running.
    kept: Kept = field(default_factory=Kept)
    #: Pins in force, and what each holds back.
    holders: tuple[Holder, ...] = ()
    #: Objects in the root that are no data of the table; none of them is touched.
    files_ignored: int = 0
    #: Files set aside earlier whose grace is not over.
    files_waiting: int = 0
    #: Files of runs that died before they could commit them, deleted now.
    files_swept: int = 0
    #: Files set aside now: they stay in place until their grace is over. In a dry run: would be.
    files_quarantined: int = 0
    #: Their size.
    bytes_quarantined: int = 0
    #: Files that are gone now. In a dry run: would be.
    files_deleted: int = 0
    #: Their size.
    bytes_freed: int = 0
    #: Files that `--undo` gave back.
    files_undone: int = 0
    #: Directories that were removed because nothing was left in them.
    directories_removed: int = 0
    #: Name of what was set aside now, for `--undo`, or was undone; null if nothing was.
    quarantine_id: str | None = None
    #: Whether nothing was changed.
    dry_run: bool = False
    #: Files that a run would set aside or delete; only in a dry run.
    files_to_delete: tuple[str, ...] = ()
    #: Files that could not be deleted; the others were.
    files_failed: int = 0
    #: The first 1,000 of them, each with its error, and whatever else went wrong.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: From the call to its end.
    duration_ms: float
