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

__all__ = ["SCAN_SCHEMA", "Scanned", "Scanner", "batch_of_objects", "scan_tree"]

SCAN_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", "UTC"), nullable=False),
        #: What a writer that died left half written, where a store has such a thing.
        pa.field("unfinished", pa.bool_(), nullable=False),
    ]
)
#: Calls that are made ahead of the one that is looked at.
_AHEAD = 16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanned:
    """What one request told of a tree."""

    #: Rows of `SCAN_SCHEMA`.
    objects: pa.RecordBatch
    #: Directories that were not looked into.
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanner:
    """How a store lists directories."""

    #: Returns what is in some directories. How deep one call goes is what suits the store.
    scan: Callable[[Sequence[str]], Scanned]
    #: How many directories one call takes.
    width: int = 1
    #: How many calls are worth making at the same time.
    parallel: int


def scan_tree(scanner: Scanner, *, enter: Callable[[str], bool]) -> Iterator[pa.RecordBatch]:
    """Stream all objects, in no order, several directories at a time."""
    pending, asked = [""], deque[Future[Scanned]]()
    with ThreadPoolExecutor(scanner.parallel) as pool:
        try:
            while pending or asked:
                while pending and len(asked) < _AHEAD:
                    asked.append(pool.submit(scanner.scan, pending[-scanner.width :]))
                    del pending[-scanner.width :]
                found = asked.popleft().result()
                pending += filter(enter, found.directories)
                if found.objects.num_rows:
                    yield found.objects
        finally:
            for future in asked:
                future.cancel()


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
