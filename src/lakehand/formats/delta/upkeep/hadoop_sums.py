"""The hidden checksums that Hadoop keeps beside files on local disk, held against the bytes."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from lakehand.errors import ObjectNotFoundError
from lakehand.formats.delta.protocol.names import CommitName, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.storage import ObjectInfo, Store

__all__ = ["stale_sums", "summed_key"]

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
_PREFIX, _SUFFIX = ".", ".crc"
#: Larger files are rare in a log, and reading them again costs more than the answer is worth.
_MOST_BYTES = 64 * 2**20


def summed_key(key: str) -> str | None:
    """Return the file that `key` is the hidden checksum of; None if it is none.

    >>> summed_key("_delta_log/.00000000000000000007.json.crc")
    '_delta_log/00000000000000000007.json'
    """
    folder, slash, name = key.rpartition("/")
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return f"{folder}{slash}{name[len(_PREFIX) : -len(_SUFFIX)]}"


def stale_sums(
    store: Store, objects: Iterable[ObjectInfo], *, newest_version: int | None
) -> Iterator[str]:
    """Yield hidden checksums among `objects` that are of other bytes than their files have.

    So are those of versions that are still to come: they wait for files that they do not know.
    """
    sizes = {info.key: info.bytes for info in objects}
    for key in sizes:
        summed = summed_key(key)
        if summed is None or store.local_path(key) is None:
            continue
        if summed not in sizes:
            if _is_later(summed, newest_version):
                yield key
        elif sizes[summed] <= _MOST_BYTES and _is_stale(store, key, summed):
            yield key


def _is_later(key: str, version: int | None) -> bool:
    name = parse_log_name(key)
    return isinstance(name, CommitName) and name.version > (-1 if version is None else version)


def _is_stale(store: Store, sum_key: str, key: str) -> bool:
    try:
        sums, data = store.get(sum_key), store.get(key)
    except ObjectNotFoundError:
        return False
    return len(sums) < _HEADER.size or sums != _sums(data, like=sums)


def _sums(data: bytes, *, like: bytes) -> bytes:
    """Return the checksum file of `data` in the portions that `like` is made of."""
    _, portion = _HEADER.unpack_from(like)
    portion = portion or len(data) or 1
    parts = [data[start : start + portion] for start in range(0, len(data), portion)]
    sums = (zlib.crc32(part).to_bytes(4, "big") for part in parts)
    return _HEADER.pack(_MAGIC, portion) + b"".join(sums)
