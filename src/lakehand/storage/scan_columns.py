"""Listings as Arrow columns, separate from modules that need no Arrow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import UnsafePathError
from lakehand.storage.scanning import Scanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakehand.storage.objects import ObjectInfo
    from lakehand.storage.tree_listing import Listing

SCAN_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", "UTC"), nullable=False),
        #: An incomplete file of a dead writer, if the store has such files.
        pa.field("unfinished", pa.bool_(), nullable=False),
    ]
)


def batch_of_objects(objects: Iterable[ObjectInfo]) -> pa.RecordBatch:
    """Return a batch of a few objects."""
    found = list(objects)
    columns = [
        pa.array([info.key for info in found], pa.string()),
        pa.array([info.bytes for info in found], pa.int64()),
        pa.array([info.modified_at for info in found], SCAN_SCHEMA.field("modified_at").type),
        pa.array([False] * len(found), pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCAN_SCHEMA)


def scanned(root: str, found: Listing, *, is_unfinished: Callable[[str], bool]) -> Scanned:
    """Return a listing as Arrow columns.

    Symbolic links that leave the root are left out. A link inside the root gives a file two names,
    and either may be referenced: UnsafePathError.
    """
    for link in found.links:
        _refuse_inside(root, link)
    count = len(found)
    ends, keys = pa.py_buffer(found.ends.tobytes()), pa.py_buffer(bytes(found.keys))
    modified_at = SCAN_SCHEMA.field("modified_at").type
    columns = [
        pa.StringArray.from_buffers(count, ends, keys),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(found.sizes.tobytes())]),
        pa.Array.from_buffers(modified_at, count, [None, pa.py_buffer(found.modified.tobytes())]),
        _unfinished(found, is_unfinished),
    ]
    objects = pa.RecordBatch.from_arrays(columns, schema=SCAN_SCHEMA)
    return Scanned(objects=objects, directories=tuple(found.directories))


def _unfinished(found: Listing, is_unfinished: Callable[[str], bool]) -> pa.Array:
    flags = np.zeros(len(found), bool)
    for index in found.hidden:
        key = found.keys[found.ends[index] : found.ends[index + 1]].decode()
        flags[index] = is_unfinished(key.rpartition("/")[2])
    return pa.array(flags)


def _refuse_inside(root: str, link: str) -> None:
    target = os.path.realpath(link)
    if target == root or target.startswith(root.rstrip("/") + "/"):
        raise UnsafePathError(
            f"{link} is a symbolic link to {target}, so a file of {root} has two names",
            path=link,
            hint="replace the link by the file itself: either name may be referenced",
        )
