"""What an upsert brings: for each key the row that is to be in the table, or that none is.

Nulls equal each other, NaN equals NaN and -0.0 equals 0.0, as for every other operation on keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.rows.sameness import key_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["LIVE", "NUMBER", "Incoming", "KeyColumns"]

#: Beside its key, what is known of a winner: which of the rows it is, and whether it is to stay.
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
    #: One row a key, in the order of NUMBER: the key (`k0`, `k1`, ...), NUMBER and LIVE.
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
