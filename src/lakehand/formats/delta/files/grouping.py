"""Which files may become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.protocol.clustering import CUBE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["partition_keys"]


def partition_keys(
    partition_values: pa.MapArray, columns: Sequence[str], *, cubes: pa.MapArray | None = None
) -> pa.Array:
    """Give each file the number of its partition, by raw values of `columns` (physical names).

    Raw, because a value that is spelled in two ways must keep both spellings. `cubes` are the tags
    of files that were put in order together: these stay apart from others, as one file of both
    would be in no order.
    """
    lookups = [(partition_values, column) for column in columns]
    lookups += [] if cubes is None else [(cubes, CUBE_ID)]
    keys = np.zeros(len(partition_values), np.int64)
    for texts, name in lookups:
        values = pc.map_lookup(texts, query_key=name, occurrence="first")
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        pairs = keys * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        keys = np.unique(pairs, return_inverse=True)[1]
    return pa.array(keys)
