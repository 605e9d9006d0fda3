"""Records of the log: framed, numbered, and checked twice, by their header and by their content.

The header has a checksum of its own. Without one a flipped bit in a length would look like a record
that was cut short by a crash, and all that follows it would be thrown away as if never written.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import HotLogError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "Kind", "Scanned", "decode", "encode", "framed", "scan_records"]

_MAGIC = b"LHR1"
#: Magic, length and checksum of the content, sequence, kind, checksum of all of these.
_HEADER = struct.Struct("<4sIIQB7xI")
_CHECKED = _HEADER.size - 4
_LARGEST = 2**32 - 1
#: Every stream of Arrow's ends in a mark of so many bytes, not all of which are zeros.
_END_BYTES = 8


class Kind(IntEnum):
    """What a record says."""

    #: These rows are in the table; under a key they take the place of older ones.
    ROWS = 1
    #: Rows with these keys are not in the table any more.
    DELETED_KEYS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One change that was asked for in one call."""

    #: Changes are numbered in the order in which they become visible.
    sequence: int
    kind: Kind
    #: Rows with all columns, or keys with the columns of the key.
    rows: pa.Table
    #: Memory that the rows take.
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """A record as it was found."""

    sequence: int
    kind: Kind
    content: pa.Buffer
    #: Where the next record begins.
    end: int


def encode(rows: pa.Table) -> pa.Buffer:
    """Return rows as a stream of Arrow's own format, which brings its schema along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content = sink.getvalue()
    if content.size > _LARGEST:
        message = f"one change holds {content.size:,} bytes, and at most {_LARGEST:,} are possible"
        raise ValidationError(message, field="data", hint="hand the rows over in several calls")
    return content


def decode(content: pa.Buffer) -> pa.Table:
    """Return the rows of `encode`; they lie in `content`, and nothing is copied."""
    return pa.ipc.open_stream(content).read_all()


def framed(kind: Kind, sequence: int, content: pa.Buffer) -> tuple[bytes, pa.Buffer]:
    """Return a record as the pieces that are written."""
    checked = _HEADER.pack(_MAGIC, content.size, zlib.crc32(content), sequence, kind, 0)[:_CHECKED]
    return checked + struct.pack("<I", zlib.crc32(checked)), content


def scan_records(data: memoryview, *, start: int, path: str) -> Iterator[Scanned]:
    """Yield the records in `data` from `start` on, as far as they are whole.

    Ends before the end of `data` where a crash has cut the last record short: nobody was told that
    it was kept. HotLogError where a record that is whole does not hold what was written.
    """
    position = start
    while position < len(data):
        found = _record_at(data, position, path)
        if found is None:
            return
        yield found
        position = found.end


def _record_at(data: memoryview, position: int, path: str) -> Scanned | None:
    """Return the record at `position`; None if it is cut short."""
    header = data[position : position + _HEADER.size]
    if len(header) < _HEADER.size:
        return None
    magic, length, checksum, sequence, kind, header_checksum = _HEADER.unpack(header)
    start = position + _HEADER.size
    if magic != _MAGIC or zlib.crc32(header[:_CHECKED]) != header_checksum:
        _require_zeros(data, position, start, path)
        return None
    content = data[start : start + length]
    if len(content) < length:
        return None
    if zlib.crc32(content) != checksum:
        _require_zeros(data, position, start + length - _END_BYTES, path)
        return None
    # A copy of its own: rows are kept as long as they are needed, the file as a whole is not.
    kept = pa.py_buffer(bytes(content))
    return Scanned(sequence=sequence, kind=Kind(kind), content=kept, end=start + length)


def _require_zeros(data: memoryview, position: int, limit: int, path: str) -> None:
    """Raise HotLogError, unless there is nothing but zeros from a place before `limit` on.

    Some file systems leave zeros where a crash came before the bytes.
    """
    if not any(data[limit:]) and not data[limit - 1]:
        return
    raise HotLogError(
        f"the log is damaged: the record at byte {position:,} of {path} is not what was written",
        path=path,
        hint="nothing was dropped; restore the file from a copy, or move the directory away to"
        " begin with an empty log, which gives up the changes that only this log has",
    )
