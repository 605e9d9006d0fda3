"""Reports of `verify` and `repair`. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from lakehand.model.reports import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.remedies import ConsentName

#: Whether there are findings.
Soundness = Literal["sound", "damaged"]

#: `cannot_compare`: the data is no longer available, or was digested by another engine.
Agreement = Literal["equal", "differs", "cannot_compare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem of a table."""

    #: Kind of the problem: one of the names below.
    name: str
    #: Path of the affected object in the table; null if there is none.
    path: str | None = None
    #: The affected version; null if there is none.
    version: int | None = None
    #: The expected value; null if not known.
    expected: str | None = None
    #: The actual value.
    found: str | None = None
    #: The problem as text.
    message: str
    #: What to do about it.
    hint: str
    #: Visible rows that cannot be read because of it, as far as recorded; null if unknown.
    rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCheck:
    """Problems of a table's log."""

    #: The latest version in the log, readable or not; None if there is none.
    version: int | None
    #: The latest readable version; None if there is none.
    readable_version: int | None
    commits: int
    checkpoints: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsSeen:
    """The current rows of some files."""

    #: Files read.
    files: int
    #: Their rows, without those that were deleted at that version.
    rows: int
    #: Hexadecimal.
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofCheck:
    """A commit that replaced files, and whether the new files still hold the same rows."""

    #: The committed version.
    version: int
    #: `equal`, `differs` or `cannot_compare`.
    outcome: Agreement
    #: What differs, or why nothing can be compared: `rows`, `record`, `unreadable_output`,
    #: `no_proof`, `unreadable_proof`, `inputs_gone`, `unreadable_input`, `outputs_gone`,
    #: `not_recorded`, `log_gone`; null if everything is equal.
    reason: str | None = None
    #: The result as text.
    message: str
    #: The proof in the commit; null if it has none.
    proof: Mapping[str, Any] | None = None
    #: Rows of the replaced files; null if they cannot be read.
    inputs: RowsSeen | None = None
    #: Rows of the new files; null if they cannot be read.
    outputs: RowsSeen | None = None
    #: Whether the outputs have the digest of the proof; null if digests cannot be compared.
    matches_record: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification(Report):
    """Report of a verification."""

    #: The operation.
    operation: str = "verify"
    #: `damaged` if there is a finding, or if rows of a rewrite differ; else `sound`.
    outcome: Soundness
    #: Latest version of the table, readable or not; null if there is none.
    version: int | None
    #: The latest readable version, whose files were checked; null if there is none.
    readable_version: int | None
    #: All problems, those of the log first.
    findings: tuple[Finding, ...]
    #: Whether the rows of every file were read.
    deep: bool
    #: Commits read.
    commits_checked: int
    #: Checkpoints read, and compared with the commits if these still exist.
    checkpoints_checked: int
    #: Files checked.
    files_checked: int
    #: Commits whose proofs were checked, newest first.
    proofs: tuple[ProofCheck, ...]
    #: `differs` if any proof does, else `equal` if anything could be compared.
    proof_outcome: Agreement
    #: Algorithm of the digests computed now.
    algorithm: str
    #: Engine that computed them.
    engine: str
    #: Duration of the call.
    duration_ms: float


RepairOutcome = Literal["committed", "nothing_to_do", "dry_run", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One repair."""

    #: Kind of the repair: `set_aside`, `rewrite_checkpoint`, `point_to_checkpoint`,
    #: `forget_versions`, `forget_history`, `drop_files`, `restore_deleted_rows`,
    #: `accept_changed_files`, `correct_deletion_count`, `recompute_statistics` or
    #: `remove_duplicate_entries`.
    name: str
    #: The repair as text.
    message: str
    #: Paths of the affected objects in the table.
    paths: tuple[str, ...] = ()
    #: What is lost; null if nothing is.
    loses: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A problem that was not repaired."""

    #: Name of the finding.
    name: str
    #: Path of the affected object; null if there is none.
    path: str | None = None
    #: The affected version; null if there is none.
    version: int | None = None
    #: Why it was not repaired.
    reason: str
    #: Options that allow a repair of it; empty if none does.
    consent: tuple[ConsentName, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedFile:
    """A file that was removed from the table."""

    #: Its path.
    path: str
    #: What was wrong with it.
    name: str
    #: Rows that were visible in it; null if not recorded.
    rows: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRepair:
    """What was, or would be, repaired in a table's log."""

    repairs: tuple[Repair, ...]
    refused: tuple[Refusal, ...]
    #: Backup directory of the objects removed from the log; None if none was.
    aside: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairReport(Report):
    """Report of a repair."""

    #: The operation.
    operation: str = "repair"
    #: `committed`: something was repaired; `refused`: there are problems, and nothing was repaired;
    #: `nothing_to_do`: there is no problem; `dry_run`.
    outcome: RepairOutcome
    #: The latest version now; null if there is none.
    version: int | None
    #: Problems before the repair.
    findings: tuple[Finding, ...]
    #: Repairs that were, or in a dry run would be, done, in this order.
    repairs: tuple[Repair, ...]
    #: Problems that were not repaired, and why.
    refused: tuple[Refusal, ...]
    #: Files that were, or would be, removed from the table because they are lost.
    files_dropped: tuple[DroppedFile, ...]
    #: Rows that were visible in them, as far as recorded.
    rows_dropped: int
    #: Backup directory of the objects removed from the log; null if none was.
    aside: str | None
    #: Problems after the repair; in a dry run: before.
    remaining: tuple[Finding, ...]
    #: Whether nothing was changed.
    dry_run: bool
    #: Duration of the call.
    duration_ms: float
