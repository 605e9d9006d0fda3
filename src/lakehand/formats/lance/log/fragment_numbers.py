"""The largest number that a fragment of a dataset ever had: numbers are never used twice.

The library does not tell it, so it is read off the manifest, a protobuf message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["next_fragment_number"]

#: `Manifest.max_fragment_id` of Lance's table format; absent while there was no fragment.
_FIELD = 11
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5
_MORE = 0x80


def next_fragment_number(dataset: Any) -> int:
    """Return the number of the fragment that comes next."""
    known = [fragment.fragment_id for fragment in dataset.get_fragments()]
    manifest = dataset._ds.serialized_manifest()  # noqa: SLF001  there is no other way to it
    found = [value for field, value in _numbers(manifest) if field == _FIELD]
    if known and (not found or found[-1] < max(known)):
        raise CorruptLogError(
            f"version {dataset.version} does not say which numbers of fragments were used",
            version=dataset.version,
        )
    return max([*found, *known], default=-1) + 1


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield the fields of a message that are numbers."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield field, value
        elif kind == _BYTES:
            length, place = _varint(message, place)
            place += length
        elif kind in (_LONG, _SHORT):
            place += 8 if kind == _LONG else 4
        else:
            raise CorruptLogError("a manifest of Lance cannot be understood")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & ~_MORE) << shift
        shift += 7
        if not byte & _MORE:
            return value, place
