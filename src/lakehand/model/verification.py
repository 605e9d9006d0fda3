"""What came of checking again what a table says of itself. Fields are those of the JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Agreement",
    "Finding",
    "LogCheck",
    "ProofCheck",
    "RowsSeen",
    "Soundness",
    "Verification",
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
class Verification:
    """What was checked, and what came of it."""

    #: The verb.
    operation: str = "verify"
    #: `damaged` if there is a finding, or if rows of a rewrite differ; else `sound`.
    outcome: Soundness
    #: URL of the table, without credentials.
    table: str
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

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand verify --json` prints."""
        return asdict(self)
