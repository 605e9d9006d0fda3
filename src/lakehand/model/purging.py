"""What became of rows that shall be gone for good."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakehand.model.reports import Outcome

__all__ = ["PurgeReport", "Remains"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """A place where what was deleted, or values of it, still is."""

    #: Stable name of the place.
    code: str
    #: What is there, and what takes it away.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeReport:
    """What a purge rewrote, set aside and deleted, and what is still to come."""

    #: The verb.
    operation: str = "purge"
    #: `committed`: something was rewritten, set aside or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version after the purge.
    version: int
    #: Files with deleted rows or dropped columns that were replaced; in a dry run: would be.
    files_rewritten: int
    #: Deleted rows that are still in files of the newest version.
    deleted_row_count: int
    #: Files of the newest version that still hold columns which the table has dropped.
    files_with_dropped_columns: int
    #: Files set aside now, until their grace is over. In a dry run: would be.
    files_quarantined: int
    #: Files that are gone now. In a dry run: would be.
    files_deleted: int
    #: Files of the log that were old enough to go. In a dry run: would be.
    log_files_deleted: int
    #: Name of what was set aside now; null if nothing was.
    quarantine_id: str | None = None
    #: When vacuum can have deleted the last data file that holds what was deleted; null if it is
    #: gone, or if nobody can say when.
    gone_at: datetime | None = None
    #: When the log can have been cleaned of values of such files; null as above.
    log_gone_at: datetime | None = None
    #: Where what was deleted, or values of it, still is.
    remaining: tuple[Remains, ...] = ()
    #: Whether nothing was changed.
    dry_run: bool = False
    #: What could not be rewritten or deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand purge --json` prints."""
        document = asdict(self)
        moments = {"gone_at": self.gone_at, "log_gone_at": self.log_gone_at}
        return document | {name: at and at.isoformat() for name, at in moments.items()}
