"""What must stay in a table's root, and what became of the rest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakehand.model.reports import Outcome

__all__ = ["Protection", "VacuumReport"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Protection:
    """The files of every version that must stay readable."""

    #: All files of this version and of every later one are protected ...
    oldest_version: int
    #: ... up to this one, the newest when the log was read.
    newest_version: int
    #: Keys below the root, distinct: data files and everything that belongs to them.
    keys: pa.ChunkedArray
    #: Bare names of files that the table names from outside, by scheme or from the root of a disk.
    #: Such a path may lead back into the table in a way that its text does not show.
    names: pa.ChunkedArray


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumReport:
    """What a vacuum found, set aside and deleted."""

    #: The verb.
    operation: str = "vacuum"
    #: `committed`: files were set aside or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version when the log was read.
    version: int
    #: The oldest version that stays readable in full.
    oldest_version: int
    #: Age in seconds from which on files that no version needs are garbage.
    retention_seconds: float
    #: Data files that were looked at.
    files_scanned: int
    #: Files that are needed, or too young to tell.
    files_retained: int
    #: Files set aside now: they stay in place until their grace is over.
    files_quarantined: int = 0
    #: Their size.
    bytes_quarantined: int = 0
    #: Files that are gone now.
    files_deleted: int = 0
    #: Their size.
    bytes_freed: int = 0
    #: Name of what was set aside now, for `--undo`; null if nothing was.
    quarantine_id: str | None = None
    #: Whether nothing was changed.
    dry_run: bool = False
    #: Files that a run would set aside or delete; only in a dry run.
    files_to_delete: tuple[str, ...] = ()
    #: Files that could not be deleted, each with its error; the others were.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand vacuum --json` prints."""
        return asdict(self)
