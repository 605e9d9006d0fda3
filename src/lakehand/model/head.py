"""What a writer must know of a table: all of its newest version but the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["TableHead"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableHead:
    """The newest version of a table, without its files."""

    #: URL of the table.
    table: str
    version: int
    #: Logical columns, partition columns included, in the table's order.
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    #: Columns that rows must bring along: left out, they would not be null but have a default.
    explicit_columns: tuple[str, ...] = ()
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
