"""What was done about a damaged table. Fields have the names of the JSON document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lakehand.model.verification import Finding

__all__ = [
    "Consent",
    "ConsentName",
    "DroppedFile",
    "FileRepair",
    "LogRepair",
    "Refusal",
    "Repair",
    "RepairOutcome",
    "RepairReport",
    "option_of",
]

#: What a caller may agree to, by the names of the options.
ConsentName = Literal["accept_data_loss", "accept_changed_files", "restore_deleted_rows"]
#: What can be done about the entry of a file.
FileRepair = Literal[
    "drop_files",
    "restore_deleted_rows",
    "accept_changed_files",
    "correct_deletion_count",
    "recompute_statistics",
    "remove_duplicate_entries",
]
RepairOutcome = Literal["committed", "nothing_to_do", "dry_run", "refused"]


def option_of(consent: ConsentName) -> str:
    """Return the option of the command for a consent.

    >>> option_of("accept_data_loss")
    '--accept-data-loss'
    """
    return "--" + consent.replace("_", "-")


@dataclass(frozen=True, kw_only=True, slots=True)
class Consent:
    """What the caller agrees to. Without it nothing is lost, and no evidence of a loss hidden."""

    #: What cannot be read, or is missing, may be given up.
    accept_data_loss: bool = False
    #: Files that contradict their size, statistics or checksum may be taken as they are.
    accept_changed_files: bool = False
    #: Rows whose deletion vector is lost may become visible again.
    restore_deleted_rows: bool = False

    def allows(self, name: ConsentName | None) -> bool:
        """Say whether something may be done that asks for this consent; None: it asks for none."""
        return name is None or bool(getattr(self, name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One thing that sets a table right."""

    #: What is done: `set_aside`, `rewrite_checkpoint`, `point_to_checkpoint`, `forget_versions`,
    #: `forget_history`, `drop_files`, `restore_deleted_rows`, `accept_changed_files`,
    #: `correct_deletion_count`, `recompute_statistics` or `remove_duplicate_entries`.
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
    #: Options, each of which lets a repair do something about it; empty if none does.
    consent: tuple[ConsentName, ...] = ()


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
    #: `committed`: something was repaired; `refused`: something is wrong, and nothing was
    #: repaired; `nothing_to_do`: nothing is wrong; `dry_run`.
    outcome: RepairOutcome
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
