"""What the log and the footers say of files, as planning and proof ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.parquet.facts import read_many_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = ["count_rows", "partition_keys"]


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


def count_rows(store: Store, inputs: Sequence[DataFile]) -> int:
    """Count visible rows: those of the footers, without those that deletion vectors hide."""
    facts = read_many_facts(store.resolve(file.path) for file in inputs)
    vectors = (file.native["add"].get("deletionVector") or {} for file in inputs)
    deleted = sum(int(vector.get("cardinality", 0)) for vector in vectors)
    return sum(file.rows for file in facts) - deleted
