"""Which names in a table's root can be files of rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["is_data"]

#: Change data is the one hidden directory that vacuum looks into.
_CHANGE_DATA = "_change_data/"
#: A directory or file whose name starts so is hidden, unless it is that of a partition.
_HIDDEN = r"(^|/)[_.][^/=]*(/|$)"
_DATA_NAME = r"(\.parquet|(^|/)deletion_vector_[^/]*\.bin)$"


def is_data(keys: pa.Array) -> pa.BooleanArray:
    """Say of each key whether it can be a data file, a deletion vector or change data.

    Everything else in the root belongs to somebody else, or to the log, and is left alone.
    """
    is_change = pc.starts_with(keys, pattern=_CHANGE_DATA)
    below = pc.if_else(is_change, pc.utf8_slice_codeunits(keys, len(_CHANGE_DATA)), keys)
    hidden = pc.match_substring_regex(below, pattern=_HIDDEN)
    named = pc.match_substring_regex(keys, pattern=_DATA_NAME)
    return pc.and_(named, pc.invert(hidden))
