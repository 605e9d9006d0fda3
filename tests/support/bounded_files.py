"""Tables of files with bounds, as snapshots give them, from plain lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["files_between"]

ROWS = 10


def files_between(
    bounds: Mapping[str, Sequence[tuple[Any, Any] | None]],
    type_: pa.DataType | None = None,
    *,
    file_bytes: Sequence[int] | None = None,
) -> pa.Table:
    """Return files of ten rows between (least, greatest) of each column; None: all rows are null.

    An end that is None is not known.
    """
    count = len(next(iter(bounds.values())))
    members = {name: _member(pairs, type_ or pa.int64()) for name, pairs in bounds.items()}
    return pa.table(
        {
            "bytes": pa.array(file_bytes or [1] * count, pa.int64()),
            "rows": pa.array([ROWS] * count, pa.int64()),
            "bounds": pa.StructArray.from_arrays(list(members.values()), list(members)),
        }
    )


def _member(pairs: Sequence[tuple[Any, Any] | None], type_: pa.DataType) -> pa.StructArray:
    low, high = ([None if pair is None else pair[side] for pair in pairs] for side in (0, 1))
    nulls = [ROWS if pair is None else 0 for pair in pairs]
    columns = [pa.array(low, type_), pa.array(high, type_), pa.array(nulls, pa.int64())]
    return pa.StructArray.from_arrays(columns, ["min", "max", "nulls"])
