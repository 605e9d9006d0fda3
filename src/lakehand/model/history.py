"""What happened to a table, version by version."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One commit as users of the format know it."""

    #: Version that the commit made.
    version: int
    #: When it was committed.
    at: datetime
    #: Name of the operation; null where the commit does not say.
    operation: str | None
    #: Arguments of the operation, as written.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Counts of the operation under the names of the engine that wrote them.
    metrics: Mapping[str, str] = field(default_factory=dict)
    #: What the commit did, in words.
    summary: str = ""
    #: Engine that wrote the commit.
    engine: str | None = None
    #: Token of the writer, by which it recognises its commit.
    token: str | None = None
    #: The evidence that lakehand stored with its commit; null for other commits.
    proof: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What changed between two versions; the tables have the columns of `Snapshot.files`."""

    from_version: int
    to_version: int
    added: pa.Table
    removed: pa.Table
    schema_changed: bool
    properties_changed: bool
