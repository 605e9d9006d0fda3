"""Listings of whole trees as columns: a million objects never become a million values."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakehand.storage.objects import ObjectInfo

__all__ = ["SCAN_SCHEMA", "Scanned", "batch_of_columns", "batch_of_objects", "scan_tree"]

SCAN_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", "UTC"), nullable=False),
        #: What a writer that died left half written, where a store has such a thing.
        pa.field("unfinished", pa.bool_(), nullable=False),
    ]
)
#: Directories that are asked for ahead of the one that is looked at.
_AHEAD = 64


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanned:
    """What one request told of a tree."""

    #: Rows of `SCAN_SCHEMA`.
    objects: pa.RecordBatch
    #: Directories that were not looked into.
    directories: tuple[str, ...] = ()


def scan_tree(
    directory: str,
    scan: Callable[[str], Scanned],
    *,
    enter: Callable[[str], bool],
    workers: int,
) -> Iterator[pa.RecordBatch]:
    """Stream the objects below `directory`, in no order, several directories at a time."""
    pending, asked = [directory], deque[Future[Scanned]]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            while pending or asked:
                while pending and len(asked) < _AHEAD:
                    asked.append(pool.submit(scan, pending.pop()))
                found = asked.popleft().result()
                pending += filter(enter, found.directories)
                if found.objects.num_rows:
                    yield found.objects
        finally:
            for future in asked:
                future.cancel()


def batch_of_columns(
    keys: Sequence[str],
    sizes: Sequence[int],
    modified_us: Sequence[int],
    unfinished: Sequence[bool],
) -> pa.RecordBatch:
    """Make a batch of columns, of which `modified_us` counts microseconds since 1970."""
    columns = [
        pa.array(keys, pa.string()),
        pa.array(sizes, pa.int64()),
        pa.array(modified_us, pa.int64()).cast(SCAN_SCHEMA.field("modified_at").type),
        pa.array(unfinished, pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCAN_SCHEMA)


def batch_of_objects(objects: Iterable[ObjectInfo]) -> pa.RecordBatch:
    """Make a batch of a few objects."""
    found = list(objects)
    columns = [
        pa.array([info.key for info in found], pa.string()),
        pa.array([info.bytes for info in found], pa.int64()),
        pa.array([info.modified_at for info in found], SCAN_SCHEMA.field("modified_at").type),
        pa.array([False] * len(found), pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCAN_SCHEMA)
