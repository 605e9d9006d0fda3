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

__all__ = ["gathered", "open_session", "runs_of"]

#: Rows of a query: each costs as much as some thousand rows.
_ROWS_A_QUERY = 256 * 1024


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
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_A_QUERY:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def runs_of(reader: pa.RecordBatchReader, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows that are ordered by `column` into tables of one value each, without the column."""
    held: list[pa.Table] = []
    current: int | None = None
    for batch in reader:
        for value, rows in _runs(pa.Table.from_batches([batch]), column):
            if held and value != current:
                assert current is not None  # noqa: S101  set with the first rows that are held
                yield current, pa.concat_tables(held)
                held = []
            current = value
            held.append(rows)
    if held and current is not None:
        yield current, pa.concat_tables(held)


def _runs(table: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    values = table[column].combine_chunks()
    ends = pa.compute.run_end_encode(values)
    start = 0
    for value, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield value, table.slice(start, end - start).drop_columns([column])
        start = end
