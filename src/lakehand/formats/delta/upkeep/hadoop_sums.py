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

__all__ = ["differs_from_its_sum", "stale_sums", "sum_of", "summed_key"]

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
_PREFIX, _SUFFIX = ".", ".crc"
#: Larger files are rare in a log, and reading them again costs more than the answer is worth.
_MOST_BYTES = 64 * 2**20
#: What is read of a data file without its rows.
_END_BYTES = 64 * 2**10


def summed_key(key: str) -> str | None:
    """Return the file that `key` is the hidden checksum of; None if it is none.

    >>> summed_key("_delta_log/.00000000000000000007.json.crc")
    '_delta_log/00000000000000000007.json'
    """
    folder, slash, name = key.rpartition("/")
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return f"{folder}{slash}{name[len(_PREFIX) : -len(_SUFFIX)]}"


def sum_of(key: str) -> str:
    """Return the key that the hidden checksum of a file has.

    >>> sum_of("p=1/a.parquet")
    'p=1/.a.parquet.crc'
    """
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{_PREFIX}{name}{_SUFFIX}"


def differs_from_its_sum(store: Store, key: str, *, whole: bool) -> bool:
    """Say whether a local file has other bytes than its hidden checksum says, if it has one.

    Unless `whole` is asked for, only the end of the file is read: its footer differs, too.
    """
    local, sums = store.local_path(key), store.local_path(sum_of(key))
    if local is None or sums is None or not sums.is_file() or not local.is_file():
        return False
    stated = sums.read_bytes()
    if len(stated) < _HEADER.size or stated[: len(_MAGIC)] != _MAGIC:
        return True
    _, portion = _HEADER.unpack_from(stated)
    size = local.stat().st_size
    count = -(-size // portion) if portion else -1
    if len(stated) != _HEADER.size + 4 * count:
        return True
    first = 0 if whole else max(0, count - _END_BYTES // portion - 1)
    with local.open("rb") as file:
        file.seek(first * portion)
        for number in range(first, count):
            start = _HEADER.size + 4 * number
            if zlib.crc32(file.read(portion)).to_bytes(4, "big") != stated[start : start + 4]:
                return True
    return False


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
