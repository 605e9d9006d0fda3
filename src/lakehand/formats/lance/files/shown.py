"""Fragments of which readers should see some rows only, before anything of that is written."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.rows import Positions
    from lakehand.model.work import DataFile

__all__ = ["ROW_ADDRESS", "Shown", "only_rows", "places_of", "without_rows"]

#: Where a row lies, as Lance hands it out: the fragment above, and the row in it below.
ROW_ADDRESS = "_rowaddr"
_HALF = np.uint64(32)
_LOWER = np.uint64(2**32 - 1)
_ONLY, _WITHOUT = "only", "without"


def without_rows(file: DataFile, positions: Positions) -> DataFile:
    """Return `file` as a reader should see it without some of its rows."""
    return replace(file, native={**file.native, _WITHOUT: _text(positions)})


def only_rows(file: DataFile, positions: Positions) -> DataFile:
    """Return `file` as a reader should see it with no other rows."""
    return replace(file, native={**file.native, _ONLY: _text(positions)})


def places_of(addresses: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the fragment of each row, and where it lies there, deleted rows counted."""
    numbers = addresses.to_numpy()
    return (numbers >> _HALF).astype(np.int64), (numbers & _LOWER).astype(np.int64)


class Shown:
    """Which rows of some fragments readers should see."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        #: By fragment: the rows that are named, and whether it is those that are seen.
        self._named = {
            file.native["id"]: _named(file.native)
            for file in files
            if _ONLY in file.native or _WITHOUT in file.native
        }

    def __bool__(self) -> bool:
        """Whether any row is hidden."""
        return bool(self._named)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are to be seen, without their addresses."""
        fragments, positions = places_of(batch.column(ROW_ADDRESS))
        is_shown = np.ones(batch.num_rows, np.bool_)
        for fragment, (named, is_seen) in self._named.items():
            chosen = fragments == fragment
            is_shown[chosen] = np.isin(positions[chosen], named) == is_seen
        return batch.filter(pa.array(is_shown)).drop_columns([ROW_ADDRESS])


def _named(native: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    kind = _ONLY if _ONLY in native else _WITHOUT
    rows = BitMap.deserialize(base64.b85decode(native[kind]))
    return np.array(rows, np.int64), kind == _ONLY


def _text(positions: Positions) -> str:
    return base64.b85encode(BitMap(positions).serialize()).decode()
