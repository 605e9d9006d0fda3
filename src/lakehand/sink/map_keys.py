"""Maps with a key twice: Arrow carries them; some readers fail, and some choose one of the two."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.expressions.session import select
from lakehand.sink.nested import inner_values, members_of, present_maps

__all__ = ["holds_maps", "repeated_key"]


def holds_maps(type_: pa.DataType) -> bool:
    """Say whether a type is a map, or has one inside."""
    return bool(pat.is_map(type_) or any(holds_maps(member.type) for member in members_of(type_)))


def repeated_key(values: pa.Array, column: pa.Field) -> str | None:
    """Return the path of a map that has a key twice; None if there is none."""
    if pat.is_map(values.type) and _has_key_twice(values):
        return str(column.name)
    for member, inner in zip(members_of(values.type), inner_values(values), strict=True):
        if holds_maps(member.type):
            path = repeated_key(inner, member)
            if path is not None:
                return f"{column.name}.{path}"
    return None


def _has_key_twice(values: pa.MapArray) -> bool:
    present, start, end = present_maps(values)
    sizes = np.diff(present.offsets.to_numpy())
    if not (sizes > 1).any():
        return False
    maps = np.repeat(np.arange(len(sizes)), sizes)
    keys = present.keys.slice(start, end - start)
    if pat.is_nested(keys.type):
        entries = pa.table({"map": maps, "key": keys})
        distinct = select("SELECT count(*) FROM (SELECT DISTINCT * FROM given)", given=entries)
        return bool(distinct.column(0)[0].as_py() < end - start)
    if pat.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # Readers take -0.0 for 0.0.
    encoded = pc.dictionary_encode(keys)
    pairs = maps * len(encoded.dictionary) + encoded.indices.to_numpy()
    # They are in order but for the keys of each map, which this kind of sort is quick at.
    return bool((np.diff(np.sort(pairs, kind="stable")) == 0).any())
