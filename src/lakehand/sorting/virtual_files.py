"""Sorts a sample of rows into virtual files, to estimate what queries would skip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine.runner_contract import usable_cores
from lakehand.planning.file_bounds import dense_ranks
from lakehand.sorting.file_boundaries import narrow_starts
from lakehand.sorting.sort_keys import SortKeys
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lakehand.formats.worker import FormatWorker
    from lakehand.model.order import Order
    from lakehand.model.work import DataFile

_SEED = 20_260_101
#: Enough for an error of about a thousandth in quantiles.
_SAMPLED_ROWS = 128 * 1024
#: For more rows than this, only some files are read.
_READ_ROWS = 32 * 2**20
_MAX_FILES_AT_ONCE = 8
#: Assumed if the table does not record the rows of a file.
_GUESSED_ROW_BYTES = 32


def sample_rows(
    worker: FormatWorker, inputs: Sequence[DataFile], order: Order, *, rows: int = _SAMPLED_ROWS
) -> pa.Table:
    """Return about this many rows of `inputs`, with the columns of `order` only."""
    files = _some(inputs, np.random.default_rng(_SEED))
    share = min(1.0, rows / max(1, sum(_rows(file) for file in files)))
    names = list(dict.fromkeys(term.path[0] for term in order.terms))

    def picked(item: tuple[int, DataFile]) -> pa.Table:
        number, file = item
        reader, lot = worker.read([file], columns=names), np.random.default_rng([_SEED, number])
        batches = (_picked(batch, share, lot) for batch in reader)
        return pa.Table.from_batches([batch for batch in batches if batch.num_rows], reader.schema)

    # No tasks run yet, so all cores may decode.
    window = min(usable_cores(), _MAX_FILES_AT_ONCE)
    tables = list(fetch_ahead(enumerate(files), picked, window=window))
    return pa.concat_tables(tables or [worker.read([], columns=names).read_all()])


def _some(inputs: Sequence[DataFile], generator: np.random.Generator) -> list[DataFile]:
    """Return all files, or a random selection with enough rows."""
    chosen, rows = [], 0
    for number in generator.permutation(len(inputs)).tolist():
        if rows >= _READ_ROWS:
            break
        chosen.append(inputs[number])
        rows += _rows(inputs[number])
    return chosen


def _rows(file: DataFile) -> int:
    return file.bytes // _GUESSED_ROW_BYTES if file.rows is None else file.rows


def _picked(batch: pa.RecordBatch, share: float, generator: np.random.Generator) -> pa.RecordBatch:
    if share >= 1.0:
        return batch
    kept = np.flatnonzero(generator.random(batch.num_rows) < share)
    return batch.take(pa.array(kept))


if TYPE_CHECKING:
    Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Ranked:
    """The values of one column by rank, and for each rank a position in the sample."""

    values: pa.Array
    #: -1 for nulls.
    ranks: Numbers
    found_at: Numbers

    @classmethod
    def of(cls, values: pa.Array) -> Self:
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        ranks, count = dense_ranks(values)
        found_at = np.zeros(max(count, 1), np.int64)
        found_at[ranks[ranks >= 0]] = np.flatnonzero(ranks >= 0)
        return cls(values=values, ranks=ranks, found_at=found_at)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """Rows that represent a table, not sorted."""

    rows: pa.Table
    columns: Mapping[str, _Ranked]
    #: The partition of each row: rows of different partitions never share a file.
    partition: Numbers

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        paths: Mapping[str, tuple[str, ...]],
        partition_columns: tuple[str, ...],
    ) -> Self:
        """Prepare the columns at `paths`."""
        return cls(
            rows=rows,
            columns={name: _Ranked.of(_column(rows, path)) for name, path in paths.items()},
            partition=_partition_numbers(rows, partition_columns),
        )

    def files(self, order: Order, count: int) -> pa.Table:
        """Return `count` files of rows in `order`, in the form of `Snapshot.files`."""
        keys = SortKeys.of_sample(order, self.rows)
        permutation = keys.permutation(self.rows, keys.keys(self.rows))
        by_order = np.from_dlpack(permutation).astype(np.int64)
        permutation = by_order[np.argsort(self.partition[by_order], kind="stable")]
        starts = self._starts(keys, permutation, count)
        rows = np.diff(np.append(starts, len(permutation)))
        bounds = {name: _bounds(each, permutation, starts) for name, each in self.columns.items()}
        return pa.table(
            {
                "bytes": pa.array(rows),
                "rows": pa.array(rows),
                "bounds": pa.StructArray.from_arrays(list(bounds.values()), list(bounds)),
            }
        )

    def _starts(self, keys: SortKeys, permutation: Numbers, count: int) -> Numbers:
        """Return where files start: as tasks split them, or evenly if partitions do."""
        if keys.order.curve == "linear" or self.partition.any():
            return np.arange(count) * len(permutation) // count
        return narrow_starts([column[permutation] for column in keys.ranks(self.rows)], count)


def _bounds(column: _Ranked, permutation: Numbers, starts: Numbers) -> pa.StructArray:
    ranks = column.ranks[permutation]
    highest = np.maximum.reduceat(ranks, starts)
    lowest = np.minimum.reduceat(np.where(ranks < 0, np.iinfo(np.int64).max, ranks), starts)
    nulls = np.add.reduceat((ranks < 0).astype(np.int64), starts)
    is_empty = highest < 0
    low, high = (
        column.values.take(pa.array(column.found_at[np.where(is_empty, 0, side)], mask=is_empty))
        for side in (lowest, highest)
    )
    return pa.StructArray.from_arrays([low, high, pa.array(nulls)], ["min", "max", "nulls"])


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.Array:
    column = rows[path[0]]
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.struct_field(whole, list(path[1:])) if len(path) > 1 else whole


def _partition_numbers(rows: pa.Table, columns: tuple[str, ...]) -> Numbers:
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        ranks, count = dense_ranks(rows[name].combine_chunks())
        numbers = numbers * (count + 1) + ranks + 1
    return numbers
