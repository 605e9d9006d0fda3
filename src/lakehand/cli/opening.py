"""How a command opens its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.table import Table

__all__ = ["open_for_command"]


def open_for_command(table: str, storage_options: Mapping[str, str], **settings: Any) -> Table:
    """Open the table that the command line names."""
    # `lakehand --help` needs neither Arrow nor DuckDB.
    from lakehand.engine.lean import leave_pandas_out
    from lakehand.table import open_table

    leave_pandas_out()
    return open_table(table, storage_options=storage_options, **settings)
