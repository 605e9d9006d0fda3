"""Files that a log lists under several spellings of their paths, each of them once.

Engines reconcile actions by paths as they are written, so a file that is added by its relative and
by its absolute path is live twice, and its rows are read twice. Here it is one file that remembers
its other spellings: whoever removes it removes all of its entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.protocol.actions import dv_id
from lakehand.formats.delta.protocol.paths import OTHER_PATHS, path_in_table
from lakehand.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["decoded_paths", "listed_once", "paths_in_table", "vector_id"]

_SPELLINGS = pa.list_(pa.string())


def decoded_paths(raw: pa.Table) -> pa.ChunkedArray:
    """Return decoded paths; where no path is encoded they share their memory with the raw ones."""
    decoded = raw.column("decoded_path")
    if decoded.null_count == raw.num_rows:
        return raw.column("raw_path")
    return pc.coalesce(decoded, raw.column("raw_path"))


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """Return the identity of a deletion vector; None if there is none."""
    if vector is None:
        return None
    known = {"storageType": vector["storage_type"], "pathOrInlineDv": vector["path_or_inline"]}
    return dv_id({**known, "offset": vector["offset"]})


def paths_in_table(paths: pa.ChunkedArray, table: str) -> pa.ChunkedArray | None:
    """Return `paths` with those that lead into the table by its URL made relative; None: none do.

    Only few are looked at one by one: a table may refer to a million files elsewhere.
    """
    is_absolute = pc.or_(
        pc.starts_with(paths, pattern="/"), pc.match_substring(paths, pattern=":/")
    )
    if not pc.any(is_absolute).as_py():
        return None
    inside = pc.match_substring(paths, pattern=parse_location(table).path)
    chosen = pc.and_(is_absolute, inside).combine_chunks()
    found = paths.filter(chosen).to_pylist()
    relative = pa.array([path_in_table(path, table) for path in found], pa.string())
    if relative.to_pylist() == found:
        return None
    combined = paths.combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(combined, chosen, relative)])


def listed_once(raw: pa.Table, table: str) -> pa.Table:
    """Return the live files of `raw`, each once, with the other spellings of its path.

    Entries of one file with other rows deleted stay apart: nobody can say which is right.
    """
    paths = decoded_paths(raw)
    names = paths_in_table(paths, table)
    if names is None:
        return raw.append_column(OTHER_PATHS, pa.nulls(raw.num_rows, _SPELLINGS))
    others: list[list[str] | None] = [None] * raw.num_rows
    dropped: set[int] = set()
    for rows in _several(names):
        # The relative spelling is the one that other engines write.
        kept, *twins = sorted(rows, key=lambda row: (paths[row].as_py() != names[row].as_py(), row))
        same = [row for row in twins if _vector(raw, row) == _vector(raw, kept)]
        others[kept] = [raw["raw_path"][row].as_py() for row in same] or None
        dropped.update(same)
    listed = raw.append_column(OTHER_PATHS, pa.array(others, _SPELLINGS))
    left = [row for row in range(raw.num_rows) if row not in dropped]
    return listed.take(pa.array(left, pa.int64()))


def _several(names: pa.ChunkedArray) -> Sequence[Sequence[int]]:
    """Return the rows of each name that occurs more than once."""
    numbered = pa.table({"name": names, "row": pa.array(np.arange(len(names)))})
    grouped = numbered.group_by("name").aggregate([("row", "list"), ("row", "count")])
    several = grouped.filter(pc.greater(grouped["row_count"], 1))
    found: list[list[int]] = several["row_list"].to_pylist()
    return found


def _vector(raw: pa.Table, row: int) -> str | None:
    return vector_id(raw["deletion_vector"][row].as_py())
