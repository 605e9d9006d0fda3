"""Files of the write-ahead log, and their records: framed, numbered and checksummed."""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import HotLogError, ValidationError
from lakehand.observe import get_logger, log_event
from lakehand.storage.local_files import TemporaryFile, is_temporary, sync_directory, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAGIC = b"LHR1"
#: Magic, length and checksum of the content, sequence, kind; then the checksum of all of these.
_FIELDS = struct.Struct("<4sIIQB7x")
_CHECKSUM = struct.Struct("<I")
_CHECKED = _FIELDS.size
_HEADER = struct.Struct("<4sIIQB7xI")
RECORD_HEADER_BYTES = _HEADER.size
_LARGEST = 2**32 - 1
#: The mark that ends every Arrow stream; not all of its bytes are zeros.
_STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_END_BYTES = len(_STREAM_END)


class Kind(IntEnum):
    """What a record says."""

    #: These rows are in the table; with a key they replace older ones.
    ROWS = 1
    #: Rows with these keys are not in the table any more.
    DELETED_KEYS = 2


class Entry(NamedTuple):
    """One change that was asked for in one call. A tuple, because one is made for every change."""

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


class Encoded(NamedTuple):
    """Rows as a stream of Arrow's own format, which has its schema in it."""

    content: pa.Buffer
    #: The same rows; they are in `content`, and not copied.
    rows: pa.Table


class _SchemaMessage(NamedTuple):
    """What a stream of batches of a schema begins with."""

    schema: pa.Schema
    message: bytes
    #: A stream with dictionaries is more than its batches.
    has_dictionaries: bool


#: The schema that was encoded last: mostly it is that of the next change, too.
_latest_schema: _SchemaMessage | None = None


def encode(batches: Sequence[pa.RecordBatch]) -> Encoded:
    """Return rows as they are logged. There is at least one batch, and all have one schema."""
    begun = _schema_message(batches[0].schema)
    if begun.has_dictionaries:
        content = _stream(batches)
        return Encoded(_sized(content), decode(content))
    # The bytes of Arrow's stream writer, in a fifth of its time for a few rows.
    messages = [batch.serialize() for batch in batches]
    content = _sized(pa.py_buffer(b"".join((begun.message, *messages, _STREAM_END))))
    position, rows = len(begun.message), []
    for message in messages:
        piece = content.slice(position, message.size)
        rows.append(pa.ipc.read_record_batch(piece, begun.schema))
        position += message.size
    return Encoded(content, pa.Table.from_batches(rows))


def encoded_size(batches: Sequence[pa.RecordBatch]) -> int | None:
    """Return how many bytes `encode` makes of rows; None if only `encode` can tell."""
    begun = _schema_message(batches[0].schema)
    if begun.has_dictionaries:
        return None
    sizes: Iterator[int] = (pa.ipc.get_record_batch_size(batch) for batch in batches)
    return len(begun.message) + sum(sizes) + _END_BYTES


def _schema_message(schema: pa.Schema) -> _SchemaMessage:
    global _latest_schema  # noqa: PLW0603  a cache of one value, replaced as a whole
    latest = _latest_schema
    if latest is None or not schema.equals(latest.schema, check_metadata=True):
        _latest_schema = latest = _SchemaMessage(
            schema, schema.serialize().to_pybytes(), any(_has_dictionary(f.type) for f in schema)
        )
    return latest


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    members = (kind.field(number).type for number in range(kind.num_fields))
    return pat.is_dictionary(kind) or any(_has_dictionary(member) for member in members)


def _stream(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _sized(content: pa.Buffer) -> pa.Buffer:
    if content.size > _LARGEST:
        message = f"one change holds {content.size:,} bytes, and at most {_LARGEST:,} are possible"
        raise ValidationError(message, field="data", hint="hand the rows over in several calls")
    return content


def decode(content: pa.Buffer) -> pa.Table:
    """Return the rows of `encode`; they lie in `content`, and nothing is copied."""
    return pa.ipc.open_stream(content).read_all()


def framed(kind: Kind, sequence: int, content: pa.Buffer) -> tuple[bytes, pa.Buffer]:
    """Return a record as the pieces that are written."""
    checked = _FIELDS.pack(_MAGIC, content.size, zlib.crc32(content), sequence, kind)
    return checked + _CHECKSUM.pack(zlib.crc32(checked)), content


def scan_records(data: memoryview, *, start: int, path: str) -> Iterator[Scanned]:
    """Yield the records in `data` from `start` on, as far as they are whole.

    Ends before the end of `data` where a crash has cut the last record short: it was never
    acknowledged. HotLogError where a record that is whole does not hold what was written.
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
    # A copy: rows outlive the buffer of the whole file.
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


_logger = get_logger(__name__)
_NAME = re.compile(r"(?P<number>[0-9]{12})\.wal")
_SEGMENTS_MAGIC = b"LHWAL\x00\x00\x01"
#: Magic with the version of the format, epoch, number, last sequence before it, checksum of these.
_SEGMENTS_HEADER = struct.Struct("<8sQQQI")
_SEGMENTS_CHECKED = _SEGMENTS_HEADER.size - 4
HEADER_BYTES = _SEGMENTS_HEADER.size
#: A file that holds a block of the disk, for the segment that begins when the disk is full.
_SPARE = "spare"
_SPARE_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One file of the log."""

    path: Path
    number: int
    #: All changes in it come into the table by the commit of this epoch.
    epoch: int
    #: The newest change before those in it.
    sequence: int


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:012d}.wal"


def create_segment(directory: Path, *, number: int, epoch: int, sequence: int) -> Segment:
    """Create an empty segment, durably, and with its header or not at all."""
    segment = Segment(
        path=segment_path(directory, number), number=number, epoch=epoch, sequence=sequence
    )
    _write_file(segment.path, _header(segment))
    return segment


def segment_from_spare(
    directory: Path, *, number: int, epoch: int, sequence: int
) -> Segment | None:
    """Create an empty segment, durably, of the spare file; None if there is none.

    It takes no room that the spare has not: a flush, which begins a segment before it can drop
    others, would otherwise need room on a full disk to make room on it.
    """
    segment = Segment(
        path=segment_path(directory, number), number=number, epoch=epoch, sequence=sequence
    )
    spare = directory / _SPARE
    if not spare.exists():
        return None
    with translated("put", str(segment.path)):
        with spare.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), _header(segment), 0)
            os.ftruncate(file.fileno(), HEADER_BYTES)
            os.fsync(file.fileno())
        spare.rename(segment.path)
        sync_directory(str(directory))
    return segment


def keep_spare(directory: Path) -> None:
    """Have the spare file ready; StoreQuotaError if there is no room for it."""
    spare = directory / _SPARE
    if not spare.exists():
        _write_file(spare, bytes(_SPARE_BYTES))


def _header(segment: Segment) -> bytes:
    fields = (_SEGMENTS_MAGIC, segment.epoch, segment.number, segment.sequence, 0)
    checked = _SEGMENTS_HEADER.pack(*fields)[:_SEGMENTS_CHECKED]
    return checked + struct.pack("<I", zlib.crc32(checked))


def _write_file(path: Path, content: bytes) -> None:
    """Create a file, durably, and with its content or not at all."""
    with translated("put", str(path)):
        file = TemporaryFile(str(path))
        try:
            file.write(memoryview(content))
            file.replace_target()
        except BaseException:
            file.remove()
            raise


def list_segments(directory: Path) -> list[Segment]:
    """Return the segments in their order."""
    for path in directory.iterdir():
        if is_temporary(path.name):
            path.unlink()  # left by a crash, and empty
    paths = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return [_opened(path) for path in paths]


def require_all(segments: Sequence[Segment]) -> None:
    """Raise HotLogError if a segment is missing between two others."""
    for before, after in pairwise(segments):
        if after.number != before.number + 1 or after.epoch < before.epoch:
            message = f"files are missing from the log between {before.path} and {after.path}"
            raise HotLogError(message, path=str(after.path), hint="restore them from a copy")


def _opened(path: Path) -> Segment:
    with translated("get", str(path)), path.open("rb") as file:
        header = file.read(_SEGMENTS_HEADER.size)
    number = int(path.stem)
    if len(header) == _SEGMENTS_HEADER.size:
        magic, epoch, said, sequence, checksum = _SEGMENTS_HEADER.unpack(header)
        if (magic, said, checksum) == (
            _SEGMENTS_MAGIC,
            number,
            zlib.crc32(header[:_SEGMENTS_CHECKED]),
        ):
            return Segment(path=path, number=number, epoch=epoch, sequence=sequence)
    raise HotLogError(
        f"{path} is no file of a log, or was written by another version of lakehand",
        path=str(path),
        hint="nothing was changed; restore it from a copy",
    )


def replay(segment: Segment, following: Segment | None) -> Iterator[Scanned]:
    """Yield the records of a segment. The last one may end in a piece of one: that is cut off.

    So may one before a segment that nothing was written to, if it goes on after that was created: a
    segment whose creation failed may be back after a loss of power. HotLogError for any other
    damage. Nothing is changed before all records were looked at.
    """
    with translated("get", str(segment.path)):
        data = memoryview(segment.path.read_bytes())
    good, sequence = HEADER_BYTES, segment.sequence
    for record in scan_records(data, start=good, path=str(segment.path)):
        good, sequence = record.end, record.sequence
        yield record
    if following is not None and sequence < following.sequence:
        message = f"changes are missing from the log between {segment.path} and {following.path}"
        raise _damaged(segment, message)
    if good < len(data):
        if following is not None and following.path.stat().st_size > HEADER_BYTES:
            message = f"{segment.path} ends within a record, and there are files after it"
            raise _damaged(segment, message)
        _cut(segment, good, len(data))


def _damaged(segment: Segment, message: str) -> HotLogError:
    hint = "nothing was dropped; restore it from a copy"
    return HotLogError(message, path=str(segment.path), hint=hint)


def _cut(segment: Segment, good: int, size: int) -> None:
    message = "The log %s ended within a record that was never acknowledged: %d bytes cut off"
    log_event(_logger, logging.WARNING, "hot_log_cut", message, segment.path, size - good)
    with translated("put", str(segment.path)), segment.path.open("r+b") as file:
        os.ftruncate(file.fileno(), good)
        os.fsync(file.fileno())
