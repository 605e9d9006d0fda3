"""Bytes of files in bounded memory: blocks of ranges, one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakehand.errors import CorruptFileError
from lakehand.storage.prefetch import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.storage import Store

__all__ = ["Ranges", "is_remote", "read_blocks", "read_places"]

#: What a processor's cache holds from the reading of a block to its writing.
_LOCAL_BLOCK_BYTES = 512 * 1024
#: Requests cost more than bytes where they go over a network; this many are in flight.
_REMOTE_BLOCK_BYTES = 4 * 2**20
_REMOTE_WINDOW = 4
#: Places with less than this between them are read together.
_GAP_BYTES = 64 * 1024


class Ranges(Protocol):
    """What holds the bytes of files: a store, or memory."""

    def get_range(self, key: str, *, start: int, length: int) -> bytes: ...


def is_remote(store: Store, key: str) -> bool:
    """Say whether reading a file means to wait for it."""
    return store.local_path(key) is None


def read_blocks(
    store: Ranges, key: str, ranges: Iterable[tuple[int, int]], *, is_remote: bool
) -> Iterator[bytes]:
    """Yield the bytes of `ranges` (start and length) in order; no block reaches into two of them.

    CorruptFileError if the file ends before a range does.
    """

    def read(block: tuple[int, int]) -> bytes:
        start, length = block
        data = store.get_range(key, start=start, length=length)
        if len(data) < length:
            raise CorruptFileError(
                f"{key} ends at {start + len(data)}, in the middle of a chunk",
                path=key,
                hint="it was cut off since its footer was read; restore it from a copy",
            )
        return data

    if is_remote:
        yield from fetch_ahead(_cut(ranges, _REMOTE_BLOCK_BYTES), read, window=_REMOTE_WINDOW)
    else:
        yield from map(read, _cut(ranges, _LOCAL_BLOCK_BYTES))


def _cut(ranges: Iterable[tuple[int, int]], block_bytes: int) -> Iterator[tuple[int, int]]:
    for start, length in ranges:
        for at in range(start, start + length, block_bytes):
            yield at, min(block_bytes, start + length - at)


def read_places(
    store: Ranges, key: str, places: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the bytes of many small places (start and length), read by few requests."""
    found: dict[tuple[int, int], bytes] = {}
    for first, end, inside in _joined(sorted(set(places))):
        data = store.get_range(key, start=first, length=end - first)
        for start, length in inside:
            found[start, length] = data[start - first : start - first + length]
    return found


def _joined(
    places: Iterable[tuple[int, int]],
) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    first = end = 0
    inside: list[tuple[int, int]] = []
    for start, length in places:
        if inside and (start - end > _GAP_BYTES or start - first > _REMOTE_BLOCK_BYTES):
            yield first, end, inside
            inside = []
        first, end = (first, max(end, start + length)) if inside else (start, start + length)
        inside.append((start, length))
    if inside:
        yield first, end, inside
