"""What an upsert brings: one row per key, or its deletion; and which files may hold the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.expressions.column_facts import Family, family_of
from lakehand.formats.scan import with_bounds
from lakehand.model.snapshot import Snapshot, quoted_column
from lakehand.planning.file_bounds import dense_ranks, extent_of_ranks, value_bounds
from lakehand.rows.key_equality import key_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from lakehand.formats.base import FormatTable

#: Columns of a winner in addition to its key: its row number, and whether it is inserted.
NUMBER, LIVE = "number", "live"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyColumns:
    """The columns that rows are found by, with the table's types. Picklable."""

    schema: pa.Schema

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def keys(self, letter: str) -> list[str]:
        """Return names for the columns that no table can spoil by its own."""
        return [f"{letter}{position}" for position in range(len(self.schema))]

    def values(self, letter: str) -> list[str]:
        """Return SQL for the values of columns that are named so, equal ones spelled equal."""
        pairs = zip(self.keys(letter), self.schema.types, strict=True)
        return [key_value(name, kind) for name, kind in pairs]

    def equal(self, values: list[str], others: list[str]) -> str:
        """Return SQL that says whether two keys are one."""
        pairs = zip(values, others, strict=True)
        return " AND ".join(f"{one} IS NOT DISTINCT FROM {other}" for one, other in pairs)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Incoming:
    """Rows and keys on their way into a table."""

    key: KeyColumns
    #: Under the table's columns. Rows that do not count any more may be among them.
    rows: pa.Table
    #: One row per key, sorted by NUMBER: the key (`k0`, `k1`, ...), NUMBER and LIVE.
    winners: pa.Table
    #: Rows before those with one key became one.
    rows_given: int

    @property
    def live_numbers(self) -> npt.NDArray[np.int64]:
        """Return which rows are to be in the table, ascending."""
        live = self.winners.filter(self.winners[LIVE])
        numbers: npt.NDArray[np.int64] = live[NUMBER].to_numpy()
        return numbers

    def live_rows(self) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """Yield the rows that are to be in the table, with their numbers, some at a time."""
        numbers, first = self.live_numbers, 0
        for batch in self.rows.to_batches():
            start, end = np.searchsorted(numbers, [first, first + batch.num_rows])
            chosen = numbers[start:end]
            if len(chosen):
                is_whole = len(chosen) == batch.num_rows
                yield chosen, batch if is_whole else batch.take(pa.array(chosen - first))
            first += batch.num_rows


if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]

_ORDERED = {Family.NUMBER, Family.FLOAT, Family.TEXT, Family.TIME}


def files_with_keys(table: FormatTable, snapshot: Snapshot, incoming: Incoming) -> Flags:
    """Say of each row of `snapshot.files` whether one of the keys may be in that file.

    Columns are checked one by one: for each there is a key between the minimum and the maximum of
    the file.
    """
    if not incoming.winners.num_rows:
        return np.zeros(snapshot.file_count, np.bool_)
    keys = dict(zip(incoming.key.names, _keys(incoming), strict=True))
    return files_with_values(table, snapshot, keys)


def files_with_values(
    table: FormatTable, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]
) -> Flags:
    """Say the same of values that rows have to have, by column."""
    # Bounds are of the table's types, and keys may be compared in others.
    useful = {
        name: values
        for name, values in keys.items()
        if _helps(values) and values.type == snapshot.schema.field(name).type
    }
    bounded = [name for name in useful if name not in snapshot.partition_columns]
    snapshot = with_bounds(table, snapshot, [quoted_column([name]) for name in bounded])
    chosen: Flags = np.ones(snapshot.file_count, np.bool_)
    for name, values in useful.items():
        chosen &= _may_hold(snapshot, name, values)
    return chosen


def _keys(incoming: Incoming) -> list[pa.ChunkedArray]:
    return [incoming.winners[name] for name in incoming.key.keys("k")]


def _helps(values: pa.ChunkedArray) -> bool:
    """Say whether bounds tell where values are: they tell nothing of nulls, nor of NaN."""
    if values.null_count or family_of(values.type) not in _ORDERED:
        return False
    return not (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def _may_hold(snapshot: Snapshot, name: str, values: pa.ChunkedArray) -> Flags:
    is_partition = name in snapshot.partition_columns
    bounds = value_bounds(snapshot.files, name if is_partition else quoted_column([name]))
    wanted = pc.unique(values).cast(bounds.low.type)
    ranks, count = dense_ranks(pa.concat_arrays([wanted, bounds.low, bounds.high]))
    extent = extent_of_ranks(bounds, ranks[len(wanted) :], rank_count=max(count, 1))
    sorted_keys = np.sort(ranks[: len(wanted)])
    # The first key that is not below the file, if there is one, is not beyond it.
    nearest = np.searchsorted(sorted_keys, extent.low)
    beyond = np.append(sorted_keys, count)
    found: Flags = extent.has_values & (beyond[nearest] <= extent.high)
    return found
