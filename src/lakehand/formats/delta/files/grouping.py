"""Which files may become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["partition_keys"]


def partition_keys(partition_values: pa.MapArray, columns: Sequence[str]) -> pa.Array:
    """Give each file the number of its partition, by raw values of `columns` (physical names).

    Raw, because a value that is spelled in two ways must keep both spellings.
    """
    keys = np.zeros(len(partition_values), np.int64)
    for column in columns:
        values = pc.map_lookup(partition_values, query_key=column, occurrence="first")
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        pairs = keys * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        keys = np.unique(pairs, return_inverse=True)[1]
    return pa.array(keys)
