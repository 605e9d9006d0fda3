"""What a writer needs to know of a table: its latest version without the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRules:
    """Rules for new rows, as Spark SQL expressions."""

    #: Conditions that must be true for every row, by constraint name.
    constraints: Mapping[str, str] = field(default_factory=dict)
    #: Expressions of generated columns, by column name.
    generated: Mapping[str, str] = field(default_factory=dict)
    #: Default values of columns that rows leave out, by column name.
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableHead:
    """The latest version of a table, without its files."""

    #: URL of the table.
    table: str
    version: int
    #: Logical columns, including partition columns, in table order.
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    #: Constraints, generated columns and defaults for new rows.
    row_rules: RowRules = field(default_factory=RowRules)
    #: Table properties, as written.
    properties: Mapping[str, str]
    #: Distinguishes this table from one that was created later at the same location.
    table_id: str | None
    #: Fingerprint of the format's other requirements for new files: see `Snapshot.rules`.
    rules: str
    #: Latest transaction version of every exactly-once writer.
    transactions: Mapping[str, int]
    #: State that only the table's format interprets.
    native: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Evolution:
    """The head of a table after a schema change."""

    head: TableHead
    #: Actions of the format that the commit must contain; empty if the table needs no change.
    native: tuple[Mapping[str, Any], ...] = ()
