"""What became of rows that shall be gone for good."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakehand.model.reports import Outcome

__all__ = ["OldValues", "PurgeReport", "Remains"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """A place that still holds what was deleted, or values of it."""

    #: Stable name of the place.
    code: str
    #: What is there, and what removes it.
    message: str
    #: From when on a purge can remove it; null: not known.
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OldValues:
    """What the history of a table holds beyond its newest version."""

    #: Newest version that removed rows or columns; None: none that the history still has.
    version: int | None
    #: When it was committed; without a version: when the last files that the history still knows of
    #: were removed.
    at: datetime | None
    #: Whether the history itself, apart from data files, holds values that were removed.
    in_history: bool
    #: From when on the last of it can be deleted; None: not known.
    history_gone_at: datetime | None = None
    #: Why that is not known.
    reason: str | None = None
    #: Indices that hold values of deleted rows.
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeReport:
    """What a purge rewrote, quarantined and deleted, and what is left."""

    #: The verb.
    operation: str = "purge"
    #: `committed`: something was rewritten, quarantined or deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version after the purge.
    version: int
    #: Files with deleted rows or dropped columns that were rewritten; in a dry run: would be.
    files_rewritten: int
    #: Deleted rows that are still in files of the newest version.
    deleted_row_count: int
    #: Files of the newest version that still hold columns which the table has dropped.
    files_with_dropped_columns: int
    #: Files quarantined now, until their grace period ends. In a dry run: would be.
    files_quarantined: int
    #: Files deleted now. In a dry run: would be.
    files_deleted: int
    #: Log files deleted now. In a dry run: would be.
    log_files_deleted: int
    #: Id of the quarantine that was started now; null if none was.
    quarantine_id: str | None = None
    #: From when on vacuum can delete the last data file that holds what was deleted; null if it is
    #: deleted, or if the time is not known.
    gone_at: datetime | None = None
    #: From when on the last values of such files can be deleted from the log; null as above.
    log_gone_at: datetime | None = None
    #: Every place that still holds what was deleted, or values of it.
    remaining: tuple[Remains, ...] = ()
    #: Whether nothing was changed.
    dry_run: bool = False
    #: What could not be rewritten or deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Duration of the call.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand purge --json` prints."""
        moments = {"gone_at": self.gone_at, "log_gone_at": self.log_gone_at}
        document = asdict(self) | {name: _iso(at) for name, at in moments.items()}
        places = [place | {"until": _iso(place["until"])} for place in document["remaining"]]
        return document | {"remaining": places}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
