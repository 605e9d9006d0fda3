"""Files of the log. Each belongs to one epoch, and is numbered after the one before it."""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lakehand.errors import HotLogError
from lakehand.hot.records import scan_records
from lakehand.observe.logs import get_logger, log_event
from lakehand.storage.local_files import TemporaryFile, is_temporary, sync_directory, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakehand.hot.records import Scanned

__all__ = [
    "HEADER_BYTES",
    "Segment",
    "create_segment",
    "keep_spare",
    "list_segments",
    "replay",
    "require_all",
    "segment_from_spare",
    "segment_path",
]

_logger = get_logger(__name__)
_NAME = re.compile(r"(?P<number>[0-9]{12})\.wal")
_MAGIC = b"LHWAL\x00\x00\x01"
#: Magic with the version of the format, epoch, number, last sequence before it, checksum of these.
_HEADER = struct.Struct("<8sQQQI")
_CHECKED = _HEADER.size - 4
HEADER_BYTES = _HEADER.size
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
    fields = (_MAGIC, segment.epoch, segment.number, segment.sequence, 0)
    checked = _HEADER.pack(*fields)[:_CHECKED]
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
            path.unlink()  # of a crash; nobody wrote into it
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
        header = file.read(_HEADER.size)
    number = int(path.stem)
    if len(header) == _HEADER.size:
        magic, epoch, said, sequence, checksum = _HEADER.unpack(header)
        if (magic, said, checksum) == (_MAGIC, number, zlib.crc32(header[:_CHECKED])):
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
    message = "The log %s ended within a record, which nobody was told is kept: %d bytes cut off"
    log_event(_logger, logging.WARNING, "hot_log_cut", message, segment.path, size - good)
    with translated("put", str(segment.path)), segment.path.open("r+b") as file:
        os.ftruncate(file.fileno(), good)
        os.fsync(file.fileno())
