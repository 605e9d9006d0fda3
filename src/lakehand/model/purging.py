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
    """A place where deleted rows, or values of them, still are."""

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
    #: Files with deleted rows that were replaced; in a dry run: would be.
    files_rewritten: int
    #: Deleted rows that are still in files of the newest version.
    deleted_row_count: int
    #: Files set aside now, until their grace is over. In a dry run: would be.
    files_quarantined: int
    #: Files that are gone now. In a dry run: would be.
    files_deleted: int
    #: Name of what was set aside now; null if nothing was.
    quarantine_id: str | None = None
    #: When vacuum can have deleted the last data file with deleted rows; null if they are gone, or
    #: if nobody can say when.
    gone_at: datetime | None = None
    #: Where deleted rows, or values of them, still are.
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
        document["gone_at"] = None if self.gone_at is None else self.gone_at.isoformat()
        return document
