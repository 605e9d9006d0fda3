"""What came of checking again what a table says of itself. Fields are those of the JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Agreement", "ProofCheck", "RowsSeen", "Verification"]

#: `cannot_compare`: nobody can say any more, or not under this engine.
Agreement = Literal["equal", "differs", "cannot_compare"]


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
    #: `no_proof`, `inputs_gone`, `unreadable_input`, `outputs_gone`, `log_gone`; null if all is
    #: equal.
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
    #: `differs` if anything does, else `equal` if anything could be compared.
    outcome: Agreement
    #: URL of the table, without credentials.
    table: str
    #: Newest version of the table.
    version: int
    #: Commits whose proofs were checked, newest first.
    proofs: tuple[ProofCheck, ...]
    #: How digests were computed now.
    algorithm: str
    #: What computed them.
    engine: str
    #: From the call to its end.
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand verify --json` prints."""
        return asdict(self)
