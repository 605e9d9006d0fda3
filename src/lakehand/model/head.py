"""What a writer must know of a table: all of its newest version but the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["Evolution", "RowRules", "TableHead"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRules:
    """What a table asks of the rows that come into it, in SQL as Spark reads it."""

    #: Conditions that must be true for every row, by their names.
    constraints: Mapping[str, str] = field(default_factory=dict)
    #: Columns whose values follow from others, by their names.
    generated: Mapping[str, str] = field(default_factory=dict)
    #: Values of columns that rows leave out, by their names.
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableHead:
    """The newest version of a table, without its files."""

    #: URL of the table.
    table: str
    version: int
    #: Logical columns, partition columns included, in the table's order.
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    #: What the table asks of new rows beyond their types.
    row_rules: RowRules = field(default_factory=RowRules)
    #: Properties of the table, as written.
    properties: Mapping[str, str]
    #: What tells this table from one that was created later at the same place.
    table_id: str | None
    #: Fingerprint of what the format asks of new files beside properties: see `Snapshot.rules`.
    rules: str
    #: Newest version of every application that writes exactly once.
    transactions: Mapping[str, int]
    #: What only the table's format understands.
    native: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Evolution:
    """A table as it will be once a commit has changed its columns."""

    head: TableHead
    #: What the commit must say for it, in words of the format; empty: the table is so already.
    native: tuple[Mapping[str, Any], ...] = ()
