"""DuckDB for one task: within its memory, and on its scratch disk beyond that."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.parquet.database import lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

    from lakehand.formats.worker import TaskLimits
    from lakehand.parquet.database import Config

__all__ = ["gathered", "open_session"]

#: What a query is asked for: each costs as much as some thousand rows.
_ROWS_A_QUERY, _BYTES_A_QUERY = 256 * 1024, 64 * 2**20


@contextmanager
def open_session(
    limits: TaskLimits, *, without_optimizers: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a connection whose temporary tables spill, and vanish with the block."""
    config: Config = {
        "threads": limits.threads,
        "memory_limit": f"{limits.memory_bytes // 2}B",
        "max_temp_directory_size": f"{limits.scratch_bytes}B",
        "preserve_insertion_order": False,
        "disabled_optimizers": without_optimizers,
    }
    with lease(config, spill_directory=limits.scratch_directory) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches to tables that are worth a query."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_A_QUERY or size >= _BYTES_A_QUERY:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
