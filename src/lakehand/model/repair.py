"""What was done about a damaged table. Fields have the names of the JSON document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.model.reports import Outcome
    from lakehand.model.verification import Finding

__all__ = ["DroppedFile", "LogRepair", "Refusal", "Repair", "RepairReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One thing that sets a table right."""

    #: What is done: `set_aside`, `rewrite_checkpoint`, `point_to_checkpoint`, `forget_versions`,
    #: `forget_history`, `drop_files` or `recompute_statistics`.
    name: str
    #: The same for people.
    message: str
    #: Objects that it is about, by their paths in the table.
    paths: tuple[str, ...] = ()
    #: What is lost by it; null if nothing is.
    loses: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Something that is wrong and stays so."""

    #: Name of the finding.
    name: str
    #: The object that it is about; null if it is about none.
    path: str | None = None
    #: The version that it is about; null if it is about none.
    version: int | None = None
    #: Why nothing is done about it.
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedFile:
    """A file that is no longer part of the table."""

    #: Its path.
    path: str
    #: What was wrong with it.
    name: str
    #: Rows that were visible in it; null if the table does not say.
    rows: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRepair:
    """What was, or would be, done about the history of a table."""

    repairs: tuple[Repair, ...]
    refused: tuple[Refusal, ...]
    #: Where objects that were taken out of the history are now; None if none was.
    aside: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairReport:
    """What was wrong with a table, what was done about it, and what is left."""

    #: The verb.
    operation: str = "repair"
    #: `committed`: something was repaired; `nothing_to_do`; `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The newest version now; null if there is none.
    version: int | None
    #: What was wrong before.
    findings: tuple[Finding, ...]
    #: What was done, or in a dry run would be done, in this order.
    repairs: tuple[Repair, ...]
    #: What was left alone, and why.
    refused: tuple[Refusal, ...]
    #: Files that were, or would be, taken out of the table because they are lost.
    files_dropped: tuple[DroppedFile, ...]
    #: Rows that were visible in them, as far as the table says.
    rows_dropped: int
    #: Where objects that were taken out of the history are now; null if none was.
    aside: str | None
    #: What is wrong now, as a last look shows; in a dry run what is wrong before.
    remaining: tuple[Finding, ...]
    #: Whether nothing was changed.
    dry_run: bool
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand repair --json` prints."""
        return asdict(self)
