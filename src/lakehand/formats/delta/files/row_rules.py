"""Where rows may not be deleted, or not be told apart by some columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import RefusedError, UnknownColumnError
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.schema import PrimitiveType, is_collated
from lakehand.formats.rows import require_no_reserved_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.log.snapshot import DeltaState

__all__ = ["require_deletion"]

_APPEND_ONLY = "delta.appendOnly"


def require_deletion(state: DeltaState, *, table: str, keys: Sequence[str]) -> None:
    """Raise RefusedError if rows of the table may not go, or its `keys` have an order of theirs."""
    require_write("rewrite", state.protocol, state.metadata, table=table)
    if state.metadata.configuration.get(_APPEND_ONLY, "false").lower() == "true":
        raise RefusedError(
            f"{table} allows no rows to be removed or changed ({_APPEND_ONLY})",
            table=table,
            operation="delete",
            feature="appendOnly",
            hint="nothing was written",
        )
    require_no_reserved_names(state.schema.names, table=table, operation="delete")
    for name in keys:
        _require_plain(state, name, table=table)


def _require_plain(state: DeltaState, name: str, *, table: str) -> None:
    column = state.schema.find(name)
    if column is None:
        raise UnknownColumnError(name, state.schema.names)
    if not isinstance(column.type, PrimitiveType) or column.type.name in {"variant", "void"}:
        raise RefusedError(
            f"rows of {table} cannot be told apart by {name!r}: it is no column of single values",
            table=table,
            operation="deduplicate",
            hint="name columns of numbers, texts, dates or the like",
        )
    if is_collated(column):
        raise RefusedError(
            f"rows of {table} cannot be told apart by {name!r}: which of its texts are equal is "
            "said by a collation",
            table=table,
            operation="deduplicate",
            feature="collations",
            hint="name other columns",
        )
