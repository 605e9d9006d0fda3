"""Deletion vectors: which rows of a data file are no longer visible."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyroaring import BitMap, BitMap64

from lakehand.errors import CorruptFileError, ObjectNotFoundError, RefusedError
from lakehand.formats.delta.protocol.names import decode_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.storage import Store

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}
_BASE = len(_ALPHABET)
_GROUP_CHARACTERS = 5
_GROUP_BYTES = 4


def z85_encode(data: bytes) -> str:
    """Return `data`, zero-padded to whole groups of four bytes, as text.

    >>> z85_encode(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = data + bytes(-len(data) % _GROUP_BYTES)
    starts = range(0, len(padded), _GROUP_BYTES)
    return "".join(_encode_group(padded[start : start + _GROUP_BYTES]) for start in starts)


def z85_decode(text: str) -> bytes:
    """Return the bytes of `text`, padding included; ValueError if it is no Z85."""
    if len(text) % _GROUP_CHARACTERS:
        raise ValueError(f"{len(text)} characters are no whole number of Z85 groups")
    starts = range(0, len(text), _GROUP_CHARACTERS)
    return b"".join(_decode_group(text[start : start + _GROUP_CHARACTERS]) for start in starts)


def _encode_group(group: bytes) -> str:
    value = int.from_bytes(group, "big")
    characters = []
    for _ in range(_GROUP_CHARACTERS):
        value, digit = divmod(value, _BASE)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))


def _decode_group(group: str) -> bytes:
    value = 0
    for character in group:
        if character not in _DIGITS:
            raise ValueError(f"{character!r} is no Z85 character")
        value = value * _BASE + _DIGITS[character]
    if value >= 1 << 8 * _GROUP_BYTES:
        raise ValueError(f"{group!r} stands for more than four bytes")
    return value.to_bytes(_GROUP_BYTES, "big")


RELATIVE, ABSOLUTE, INLINE = "u", "p", "i"

_FILE_VERSION = 1
_MAGIC = 1681511377
# The layout of the first tables with deletion vectors; no engine writes it any more.
_NATIVE_MAGIC = 1681511376
_LENGTH = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_MAGIC_NUMBER = struct.Struct("<I")
_NATIVE_COUNT = struct.Struct("<I")
_FRAMING_BYTES = _LENGTH.size + _CHECKSUM.size
_UUID_CHARACTERS = 20
_NEAR_START_BYTES = 64 * 1024
_LOST_HINT = (
    "restore the file from a backup, or the table to a version before it was written; `lakehand"
    " repair` says what else can be done"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DvDescriptor:
    """Where the deletion vector of a file is, and how many rows it hides."""

    storage_type: str
    path_or_inline: str
    #: Position in the file. Absent and 0 are different identities of the same position.
    offset: int | None = None
    size_bytes: int
    cardinality: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        offset = value.get("offset")
        return cls(
            storage_type=value["storageType"],
            path_or_inline=value["pathOrInlineDv"],
            offset=None if offset is None else int(offset),
            size_bytes=int(value["sizeInBytes"]),
            cardinality=int(value["cardinality"]),
        )

    def to_json(self) -> dict[str, Any]:
        offset = {} if self.offset is None else {"offset": self.offset}
        return {
            "storageType": self.storage_type,
            "pathOrInlineDv": self.path_or_inline,
            **offset,
            "sizeInBytes": self.size_bytes,
            "cardinality": self.cardinality,
        }

    @property
    def path(self) -> str | None:
        """Decoded path of the file that holds the vector; None if it is inline.

        >>> DvDescriptor(storage_type="u", path_or_inline="ab^-aqEH.-t@S}K{vb[*k^",
        ...     offset=1, size_bytes=44, cardinality=6).path
        'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
        """
        if self.storage_type == INLINE:
            return None
        if self.storage_type == ABSOLUTE:
            return decode_path(self.path_or_inline)
        if self.storage_type != RELATIVE:
            message = f"deletion vectors of storage type {self.storage_type!r} are not supported"
            raise RefusedError(message, feature="deletionVectors")
        return self._relative_path()

    def _relative_path(self) -> str:
        prefix = self.path_or_inline[:-_UUID_CHARACTERS]
        try:
            identifier = uuid.UUID(bytes=z85_decode(self.path_or_inline[-_UUID_CHARACTERS:]))
        except ValueError as error:
            raise _corrupt(self.path_or_inline, f"its name cannot be decoded: {error}") from error
        return _file_key(identifier, prefix=prefix)


def read_deletion_vector(
    store: Store, descriptor: DvDescriptor, *, rows: int | None = None
) -> BitMap64:
    """Return the positions of the rows that are gone, after every check that is possible.

    `rows` is the number of physical rows in the data file, where it is known.
    """
    bitmap = read_any_cardinality(store, descriptor, rows=rows)
    if len(bitmap) != descriptor.cardinality:
        reason = f"it holds {len(bitmap)} rows where the log says {descriptor.cardinality}"
        hint = "run `lakehand repair`, which corrects the number where the vector has a checksum"
        raise _corrupt(descriptor.path or "inline", reason, hint=hint)
    return bitmap


def read_any_cardinality(
    store: Store, descriptor: DvDescriptor, *, rows: int | None = None
) -> BitMap64:
    """Return the same, however many rows the log says there are."""
    path = descriptor.path
    data = _inline(descriptor) if path is None else _from_file(store, path, descriptor)
    where = path or "inline"
    bitmap = _parse(data, where=where)
    if rows is not None and bitmap and bitmap.max() >= rows:
        raise _corrupt(where, f"it deletes row {bitmap.max()} of a file with {rows} rows")
    return bitmap


def write_deletion_vectors(
    store: Store, bitmaps: Sequence[BitMap64], *, directory: str = ""
) -> list[DvDescriptor]:
    """Write all of `bitmaps` into one new file and return how the log names each of them.

    The file is named relative to the table, because other engines' vacuum protects only those. It
    lies in the root or in `directory` below it.
    """
    identifier = uuid.uuid4()
    name = directory + z85_encode(identifier.bytes)
    content = bytearray([_FILE_VERSION])
    descriptors = []
    for bitmap in bitmaps:
        data = _MAGIC_NUMBER.pack(_MAGIC) + bitmap.serialize()
        descriptor = DvDescriptor(
            storage_type=RELATIVE,
            path_or_inline=name,
            offset=len(content),
            size_bytes=len(data),
            cardinality=len(bitmap),
        )
        descriptors.append(descriptor)
        content += _LENGTH.pack(len(data)) + data + _CHECKSUM.pack(zlib.crc32(data))
    if descriptors:
        store.put(_file_key(identifier, prefix=directory), bytes(content))
    return descriptors


def _file_key(identifier: uuid.UUID, *, prefix: str = "") -> str:
    return f"{prefix}/deletion_vector_{identifier}.bin".removeprefix("/")


def _inline(descriptor: DvDescriptor) -> bytes:
    try:
        data = z85_decode(descriptor.path_or_inline)
    except ValueError as error:
        raise _corrupt("inline", str(error)) from error
    if not len(data) - 4 < descriptor.size_bytes <= len(data):
        reason = f"it has {len(data)} bytes where the log says {descriptor.size_bytes}"
        raise _corrupt("inline", reason)
    return data[: descriptor.size_bytes]


def _from_file(store: Store, path: str, descriptor: DvDescriptor) -> bytes:
    owner, key = store.resolve(path)
    offset = descriptor.offset or 0
    # The first byte of the file comes along where that costs no second request.
    start = 0 if offset <= _NEAR_START_BYTES else offset
    length = offset - start + descriptor.size_bytes + _FRAMING_BYTES
    try:
        read = owner.get_range(key, start=start, length=length)
    except ObjectNotFoundError as error:
        raise _corrupt(path, "the file is missing") from error
    if start == 0 and offset > 0 and read[:1] != bytes([_FILE_VERSION]):
        raise _corrupt(path, f"its version is {read[:1].hex() or 'missing'} and not 01")
    return _unframe(read[offset - start :], path=path, size_bytes=descriptor.size_bytes)


def _unframe(framed: bytes, *, path: str, size_bytes: int) -> bytes:
    if len(framed) != size_bytes + _FRAMING_BYTES:
        raise _corrupt(path, f"it ends after {len(framed)} of {size_bytes + _FRAMING_BYTES} bytes")
    data = framed[_LENGTH.size : -_CHECKSUM.size]
    (length,) = _LENGTH.unpack_from(framed)
    if length != size_bytes:
        raise _corrupt(path, f"it has {length} bytes where the log says {size_bytes}")
    (checksum,) = _CHECKSUM.unpack_from(framed, len(framed) - _CHECKSUM.size)
    if checksum != zlib.crc32(data):
        raise _corrupt(path, "its checksum does not match its bytes")
    return data


def _parse(data: bytes, *, where: str) -> BitMap64:
    if len(data) < _MAGIC_NUMBER.size:
        raise _corrupt(where, "it is too short")
    (magic,) = _MAGIC_NUMBER.unpack_from(data)
    parse = {_MAGIC: BitMap64.deserialize, _NATIVE_MAGIC: _parse_native}.get(magic)
    if parse is None:
        raise _corrupt(where, f"its magic number is {magic}")
    try:
        return parse(data[_MAGIC_NUMBER.size :])
    except (ValueError, IndexError, struct.error) as error:
        raise _corrupt(where, f"its bitmap cannot be read: {error}") from error


def _parse_native(data: bytes) -> BitMap64:
    """Read the old layout: one 32-bit bitmap after the other, each led by its length."""
    (count,) = _NATIVE_COUNT.unpack_from(data)
    position, rows = _NATIVE_COUNT.size, BitMap64()
    for high in range(count):
        (length,) = _NATIVE_COUNT.unpack_from(data, position)
        start = position + _NATIVE_COUNT.size
        position = start + length
        if position > len(data):
            raise ValueError(f"bitmap {high} ends behind the data")
        low = BitMap.deserialize(data[start:position])
        rows.update(row + (high << 32) for row in low)
    return rows


def _corrupt(where: str, reason: str, *, hint: str = _LOST_HINT) -> CorruptFileError:
    message = f"the deletion vector {where} cannot be used: {reason}"
    return CorruptFileError(message, hint=hint, path=where)
