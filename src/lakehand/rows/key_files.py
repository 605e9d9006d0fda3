"""Which files may hold a key that is looked for, by what the table says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.expressions.facts import Family, family_of
from lakehand.model.snapshot import column_text
from lakehand.planning.file_bounds import dense_ranks, place, value_bounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.rows.incoming import Incoming

    Flags = npt.NDArray[np.bool_]

__all__ = ["files_with_keys"]

_ORDERED = {Family.NUMBER, Family.FLOAT, Family.TEXT, Family.TIME}


def files_with_keys(table: FormatTable, snapshot: Snapshot, incoming: Incoming) -> Flags:
    """Say of each row of `snapshot.files` whether one of the keys may be in that file.

    Columns are looked at one by one: for each there is a key between the least and the greatest
    value of the file.
    """
    if not incoming.winners.num_rows:
        return np.zeros(snapshot.file_count, np.bool_)
    keys = dict(zip(incoming.key.names, _keys(incoming), strict=True))
    # Bounds are of the table's types, and keys may be compared in others.
    useful = {
        name: values
        for name, values in keys.items()
        if _helps(values) and values.type == snapshot.schema.field(name).type
    }
    bounded = [name for name in useful if name not in snapshot.partition_columns]
    if bounded:
        spelled = [column_text([name]) for name in bounded]
        snapshot = table.snapshot(version=snapshot.version, statistics=spelled)
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
    bounds = value_bounds(snapshot.files, name if is_partition else column_text([name]))
    wanted = pc.unique(values).cast(bounds.low.type)
    ranks, count = dense_ranks(pa.concat_arrays([wanted, bounds.low, bounds.high]))
    extent = place(bounds, ranks[len(wanted) :], rank_count=max(count, 1))
    sorted_keys = np.sort(ranks[: len(wanted)])
    # The first key that is not below the file, if there is one, is not beyond it.
    nearest = np.searchsorted(sorted_keys, extent.low)
    beyond = np.append(sorted_keys, count)
    found: Flags = extent.has_values & (beyond[nearest] <= extent.high)
    return found
