"""The rows of a merge's source: on this machine's disk, taken by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.expressions.evaluate import evaluable
from lakehand.rows.incoming import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from lakehand.expressions.two_tables import Equality, TwoTableCalculator
    from lakehand.rows.merge_conditions import PairConditions

    Numbers = npt.NDArray[np.int64]

_SHOWN_CHARACTERS = 80


class MergeSource:
    """Rows with numbers from 0 on."""

    def __init__(self, name: str, rows: pa.Table) -> None:
        """`name` is the alias of the source; `rows` are memory-mapped, without their numbers."""
        self.name = name
        self.schema = rows.schema
        self.rows = rows.num_rows
        self._batches = rows.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows, with the number of the first one of each batch."""
        return zip(self._starts.tolist(), self._batches, strict=False)

    def take(self, numbers: Numbers) -> pa.RecordBatch:
        """Return rows by their numbers, in that order; batches that hold none are not touched."""
        order = np.argsort(numbers, kind="stable")
        wanted = numbers[order]
        ends = np.searchsorted(wanted, self._starts)
        taken = [
            batch.take(pa.array(wanted[first:last] - start))
            for (start, batch), first, last in zip(self.batches(), ends, ends[1:], strict=False)
            if last > first
        ]
        if not taken:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, kind) for kind in self.schema.types], schema=self.schema
            )
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(taken).take(pa.array(back))

    def compared(self, compiled: PairConditions) -> pa.Table:
        """Return what the conditions over pairs read of the source, and the numbers of rows."""
        calculator = compiled.calculator
        pieces = []
        for start, batch in self.batches():
            numbers = np.arange(start, start + batch.num_rows, dtype=np.int64)
            columns = {**calculator.values_of(self.name, batch), NUMBER: pa.array(numbers)}
            pieces.append(pa.table(columns))
        return pa.concat_tables(pieces) if pieces else pa.table({NUMBER: pa.array([], pa.int64())})

    def values(self, equality: Equality, calculator: TwoTableCalculator) -> pa.ChunkedArray:
        """Return what a column of the target has to equal, one value per row."""
        found = [
            calculator.compute_values(
                [equality.value.sql],
                calculator.values_of(self.name, batch),
                rows=batch.num_rows,
            )[0].cast(equality.value.type)
            for _, batch in self.batches()
        ]
        return pa.chunked_array(found, equality.value.type)

    def shown(self, numbers: Numbers, compiled: PairConditions) -> str:
        """Return rows as an error shows them: by the columns that conditions read."""
        paths = [path[1:] for path in compiled.calculator.references if path[0] == self.name]
        rows = self.take(numbers)
        columns = {".".join(path): evaluable(rows, path).to_pylist() for path in paths}
        return " and ".join(
            "("
            + ", ".join(f"{name} = {values[row]!r}" for name, values in columns.items())[
                :_SHOWN_CHARACTERS
            ]
            + ")"
            for row in range(rows.num_rows)
        )
