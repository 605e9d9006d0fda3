"""What verbs report that change single rows of a table. Fields have the names of the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehand.model.reports import ChangeReport

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DeduplicationReport", "DeletionReport", "RowReport", "UpsertReport"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowReport(ChangeReport):
    """What a change of single rows meant for rows and files."""

    #: Visible rows of the table before; null if they were not counted.
    rows_before: int | None = None
    #: Visible rows of the table after, had nobody else written meanwhile.
    rows_after: int | None = None
    #: Files that stay as they are, with more rows hidden.
    files_marked: int = 0
    #: Files written for readers of changes.
    change_files_added: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionReport(RowReport):
    """Which rows went, and what that meant for files."""

    #: Rows that went; in a dry run: would go.
    rows_removed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class UpsertReport(RowReport):
    """Which rows came, which were replaced and which went. In a dry run: would."""

    #: The columns that rows were found by.
    key: tuple[str, ...]
    #: Rows that were given, before those with one key became one.
    rows_given: int = 0
    #: Rows whose key was not there.
    rows_inserted: int = 0
    #: Rows whose key was there: they took the place of what had it.
    rows_updated: int = 0
    #: Rows that went and that nothing replaced.
    rows_deleted: int = 0
    #: Files that may have held one of the keys, so that their keys were read.
    files_scanned: int = 0


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
    #: Runs that are at work on the same deduplication, which was left to them.
    left_to_runs: tuple[str, ...] = ()
