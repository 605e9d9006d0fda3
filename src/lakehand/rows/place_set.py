"""A set of rows, each named by the number of its file and its position there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from lakehand.formats.rows import Positions

__all__ = ["PlaceSet"]


class PlaceSet:
    """Says of many rows at once whether they are in the set; it takes a byte a row of the files."""

    def __init__(self, positions: Sequence[Positions]) -> None:
        """`positions` are those of each file, by its number."""
        # One more than there are rows up to the last one: it stands for all behind that.
        sizes = [int(places.max(initial=-1)) + 2 for places in positions]
        self._starts = np.cumsum([0, *sizes])
        self._holds = np.zeros(self._starts[-1], np.bool_)
        for start, places in zip(self._starts, positions, strict=False):
            self._holds[start + places] = True

    def holds(self, files: npt.NDArray[np.int32], positions: Positions) -> npt.NDArray[np.bool_]:
        """Say of each row whether it is in the set."""
        first, behind = self._starts[files], self._starts[files + 1]
        found: npt.NDArray[np.bool_] = self._holds[np.minimum(first + positions, behind - 1)]
        return found

    def filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on the rows that are in the set; the last two columns of batches are places."""
        for batch in batches:
            places = (batch.column(batch.num_columns - back).to_numpy() for back in (2, 1))
            wanted = self.holds(*places)
            if wanted.any():
                yield batch if wanted.all() else batch.filter(pa.array(wanted))
