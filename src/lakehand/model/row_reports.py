"""What verbs report that take single rows out of a table. Fields have the names of the JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.model.reports import GroupCounts, MethodCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.reports import Outcome
    from lakehand.model.work import Proof

__all__ = ["DeduplicationReport", "DeletionReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionReport:
    """Which rows went, and what that meant for files."""

    #: The verb.
    operation: str
    #: `committed`, `nothing_to_do` or `dry_run`.
    outcome: Outcome
    #: URL of the table, without credentials.
    table: str
    #: The version that the operation made, or the newest one if it made none.
    version: int
    #: Visible rows of the table before; null if they were not counted.
    rows_before: int | None = None
    #: Visible rows of the table after, had nobody else written meanwhile.
    rows_after: int | None = None
    #: Rows that went; in a dry run: would go.
    rows_removed: int = 0
    #: Files of the table before.
    files_before: int
    #: Files of the table after, had nobody else written meanwhile.
    files_after: int
    #: Files that left the table.
    files_removed: int = 0
    #: Files that were written in place of others.
    files_added: int = 0
    #: Files that stay as they are, with more rows hidden.
    files_marked: int = 0
    #: Files written for readers of changes.
    change_files_added: int = 0
    #: Rows that were compared.
    rows_read: int = 0
    #: Rows that were copied into new files.
    rows_written: int = 0
    #: Size of the table before.
    bytes_before: int
    #: Size of the table after, had nobody else written meanwhile.
    bytes_after: int
    #: From the call to its end.
    duration_ms: float
    #: Time for finding the rows.
    plan_ms: float = 0.0
    #: Time for finding the rows, as far as it was reading.
    read_ms: float = 0.0
    #: Time for writing, added up over all tasks; likewise the next.
    write_ms: float = 0.0
    #: Time for reading back and comparing.
    prove_ms: float = 0.0
    #: Time for the commit.
    commit_ms: float = 0.0
    #: Files by the way they were rewritten.
    methods: MethodCounts = field(default_factory=MethodCounts)
    #: Portions of files that lost rows.
    groups: GroupCounts = field(default_factory=GroupCounts)
    #: Evidence for what is left of the files that lost rows; null if nothing was committed.
    proof: Proof | None = None
    #: Attempts of the commit beyond the first.
    retries: int = 0
    #: Nothing fails alone: one failure leaves the table as it was.
    errors: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the document that the command prints with `--json`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeduplicationReport(DeletionReport):
    """Which duplicates went, and how they were distributed."""

    #: The columns that were compared; null for exact duplicates of whole rows.
    key: tuple[str, ...] | None = None
    #: Which of several equal rows was kept.
    keep: str = "first"
    #: Whose greatest value was kept by `latest`.
    order_by: str | None = None
    #: Rows that went because another one has the same key; in a dry run: would go.
    duplicates_removed: int = 0
    #: The same where whole rows were compared, else 0.
    exact_duplicates_removed: int = 0
    #: How many keys have so many rows too many.
    duplicate_distribution: Mapping[int, int] = field(default_factory=dict)
    #: Most rows with one key; 1 if there are no duplicates, 0 if there are no rows.
    max_duplicates_per_key: int = 0
    #: Rows that went by rows before.
    deduplication_ratio: float = 0.0
