"""What came of looking after a table's log. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from lakehand.model.reports import Outcome

__all__ = ["KeepWishes", "LogCleanup", "LogCleanupReport", "RestoreReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepWishes:
    """What must stay readable beyond what the table itself asks for."""

    #: So many of the newest versions.
    versions: int = 0
    #: So many of the newest checkpoints.
    checkpoints: int = 0
    #: These, wherever they are.
    pinned_versions: Collection[int] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanup:
    """What of a log is, or would be, gone."""

    #: Newest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may go.
    cutoff: datetime
    #: Why nothing more goes; null where time alone decides.
    reason: str | None = None
    #: Objects that are gone, or would go, in the order in which they go.
    files: tuple[str, ...] = ()
    #: Their size.
    bytes: int = 0
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCleanupReport:
    """What a cleanup of the log deleted."""

    #: The verb.
    operation: str = "clean_logs"
    #: `committed`: something was deleted; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: Newest version of the table.
    version: int
    #: The oldest version that stays readable.
    oldest_version: int
    #: Versions that ended before this time may go, ISO 8601.
    cutoff: str
    #: Why nothing more goes; null where time alone decides.
    reason: str | None
    #: Objects that are gone, or in a dry run would go.
    files: tuple[str, ...]
    #: Number of these.
    files_deleted: int
    #: Their size.
    bytes_freed: int
    #: Whether uploads that were never finished would have been seen. False in object stores: there
    #: a rule of the bucket has to abort them.
    sees_unfinished_uploads: bool
    #: Whether nothing was changed.
    dry_run: bool
    #: Objects that could not be deleted, each with its error.
    errors: tuple[Mapping[str, Any], ...]
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand clean-logs --json` prints."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport:
    """What it took to bring a table back to an earlier version."""

    #: The verb.
    operation: str = "restore"
    #: `committed`; `nothing_to_do`: the table is as it was; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version now.
    version: int
    #: The version whose content the table has again.
    restored_version: int
    #: Files that came back.
    files_restored: int
    #: Their size.
    bytes_restored: int
    #: Files that left.
    files_removed: int
    #: Their size.
    bytes_removed: int
    #: Whether columns or properties were set back as well.
    metadata_restored: bool
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand restore --json` prints."""
        return asdict(self)
