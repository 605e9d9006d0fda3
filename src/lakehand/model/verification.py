"""What `verify` and `repair` report. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from lakehand.model.reports import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Agreement",
    "Consent",
    "ConsentName",
    "DroppedFile",
    "FileRepair",
    "Finding",
    "LogCheck",
    "LogRepair",
    "ProofCheck",
    "Refusal",
    "Repair",
    "RepairOutcome",
    "RepairReport",
    "RowsSeen",
    "Soundness",
    "Verification",
    "option_of",
]


#: Whether anything is wrong.
Soundness = Literal["sound", "damaged"]

#: `cannot_compare`: nobody can say any more, or not under this engine.
Agreement = Literal["equal", "differs", "cannot_compare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is wrong with a table."""

    #: What it is: one of the names below.
    name: str
    #: The object that it is about, by its path in the table; null if it is about none.
    path: str | None = None
    #: The version that it is about; null if it is about none.
    version: int | None = None
    #: What should be there; null where nobody can say.
    expected: str | None = None
    #: What is there.
    found: str | None = None
    #: The same for people.
    message: str
    #: What to do about it.
    hint: str
    #: Visible rows that cannot be read because of it, as far as the table says; null if unknown.
    rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCheck:
    """What is wrong with the history of a table."""

    #: The newest version that is there, readable or not; None if there is none.
    version: int | None
    #: The newest version that can be read; None if there is none.
    readable_version: int | None
    commits: int
    checkpoints: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsSeen:
    """The rows of some files, as they are read now."""

    #: Files that were read.
    files: int
    #: Their rows, without those that were deleted then.
    rows: int
    #: Hexadecimal.
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofCheck:
    """A commit that replaced files, and whether the new ones still hold the rows of the old."""

    #: Version that the commit made.
    version: int
    #: `equal`, `differs` or `cannot_compare`.
    outcome: Agreement
    #: What differs, or why nothing can be compared: `rows`, `record`, `unreadable_output`,
    #: `no_proof`, `unreadable_proof`, `inputs_gone`, `unreadable_input`, `outputs_gone`,
    #: `not_recorded`, `log_gone`; null if all is equal.
    reason: str | None = None
    #: The same for people.
    message: str
    #: The proof in the commit; null if it has none.
    proof: Mapping[str, Any] | None = None
    #: Rows of the files that were replaced; null where they cannot be read.
    inputs: RowsSeen | None = None
    #: Rows of the files that took their place; null where they cannot be read.
    outputs: RowsSeen | None = None
    #: Whether the outputs have the digest of the proof; null where digests do not compare.
    matches_record: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification(Report):
    """What was checked, and what came of it."""

    #: The verb.
    operation: str = "verify"
    #: `damaged` if there is a finding, or if rows of a rewrite differ; else `sound`.
    outcome: Soundness
    #: Newest version of the table, be it readable or not; null if there is none.
    version: int | None
    #: The newest version that can be read, whose files were checked; null if there is none.
    readable_version: int | None
    #: What is wrong, the history first.
    findings: tuple[Finding, ...]
    #: Whether the rows of every file were read.
    deep: bool
    #: Commits that were read.
    commits_checked: int
    #: Checkpoints that were read and compared with the commits, where these are there.
    checkpoints_checked: int
    #: Files that were looked at.
    files_checked: int
    #: Commits whose proofs were checked, newest first.
    proofs: tuple[ProofCheck, ...]
    #: `differs` if any proof does, else `equal` if anything could be compared.
    proof_outcome: Agreement
    #: How digests were computed now.
    algorithm: str
    #: What computed them.
    engine: str
    #: From the call to its end.
    duration_ms: float


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
class RepairReport(Report):
    """What was wrong with a table, what was done about it, and what is left."""

    #: The verb.
    operation: str = "repair"
    #: `committed`: something was repaired; `refused`: something is wrong, and nothing was
    #: repaired; `nothing_to_do`: nothing is wrong; `dry_run`.
    outcome: RepairOutcome
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
