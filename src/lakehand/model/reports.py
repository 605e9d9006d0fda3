"""What verbs report. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["CheckpointReport", "Outcome"]

Outcome = Literal["committed", "nothing_to_do", "dry_run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointReport:
    """The checkpoint of one version."""

    operation: str = "checkpoint"
    #: `committed`: written now; `nothing_to_do`: a complete one was there.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The version that was folded.
    version: int
    #: Form of the checkpoint, as the format knows it.
    kind: str
    #: Objects that it is made of.
    files: tuple[str, ...]
    #: Size of these objects together.
    bytes: int
    #: Entries in it.
    action_count: int
    duration_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand checkpoint --json` prints."""
        return asdict(self)
