"""How a command opens its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.table import Table

__all__ = ["open_for_command", "open_for_rewriting"]


def open_for_command(table: str, storage_options: Mapping[str, str], **settings: Any) -> Table:
    """Open the table that the command line names."""
    # `lakehand --help` needs neither Arrow nor DuckDB.
    from lakehand.engine.lean import leave_pandas_out
    from lakehand.table import open_table

    leave_pandas_out()
    return open_table(table, storage_options=storage_options, **settings)


def open_for_rewriting(
    table: str, storage_options: Mapping[str, str], *, dry_run: bool, **options: Any
) -> Table:
    """Open a table whose files may be rewritten; what decodes rows is loaded beside, meanwhile."""
    from lakehand.engine import is_spark_asked_for
    from lakehand.engine.cores import usable_cores
    from lakehand.engine.local_worker import start_workers_ahead
    from lakehand.settings import Settings

    engine = Settings({name: options.get(name) for name in ("engine", "master", "remote")})
    if not dry_run and usable_cores() > 1 and not is_spark_asked_for(engine):
        start_workers_ahead(["lakehand.rewrite.task"])
    return open_for_command(table, storage_options)
