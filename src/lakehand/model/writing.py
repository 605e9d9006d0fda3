"""What a write reports. Fields have the names of the JSON documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.model.reports import Outcome

__all__ = ["WriteReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteReport:
    """What `append` or `overwrite` did."""

    #: The verb.
    operation: str
    #: `committed`, or `nothing_to_do` if there were no rows, or the table had them.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The version that holds the rows, or the newest one known if nothing was committed.
    version: int
    #: Files that left the table.
    files_removed: int = 0
    #: Files with the new rows.
    files_added: int = 0
    #: New rows.
    rows_written: int = 0
    #: Size of the new files together.
    bytes_written: int = 0
    #: From the call to its end.
    duration_ms: float
    #: Time for reading the rows that were given, and writing them into files.
    write_ms: float = 0.0
    #: Time for the commit.
    commit_ms: float = 0.0
    #: Attempts of the commit beyond the first.
    retries: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return asdict(self)
