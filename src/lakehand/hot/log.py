"""The write-ahead log of one hot table: a directory that one process at a time has open.

All changes of an epoch lie in segments of that epoch, and the first segment of the next epoch is
there before anything of this one is committed. So the epoch that the table names as its last says
all about what is in the table: segments up to it are waste, those above it are not there yet.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from lakehand.errors import HotLogError, StorageError
from lakehand.hot.records import framed
from lakehand.hot.segments import create_segment, list_segments, replay, require_all
from lakehand.observe.steps import Step, reached
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakehand.hot.records import Kind, Scanned
    from lakehand.hot.segments import Segment

__all__ = ["WriteAheadLog"]

#: Pieces that one call writes at most; the system's limit is 1,024.
_PIECES = 512


class WriteAheadLog:
    """Segments, of which the last one takes records. Calls that write take turns."""

    def __init__(
        self, directory: Path, segments: list[Segment], *, segment_bytes: int, syncs: bool
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._segment_bytes = segment_bytes
        self._syncs = syncs
        self._descriptor = -1
        #: Bytes of the last segment that belong to records that were taken.
        self._length = 0
        self._is_synced = True
        self._failure: BaseException | None = None
        #: The newest change that the log has, or had.
        self.sequence = segments[-1].sequence

    @classmethod
    def open(
        cls, directory: Path, *, committed_epoch: int, segment_bytes: int, syncs: bool
    ) -> tuple[Self, Iterator[tuple[int, Scanned]]]:
        """Return the log, and its records above `committed_epoch`, each with its epoch.

        The records are to be read to their end before the log takes others.
        """
        segments = list_segments(directory)
        if segments and segments[-1].epoch <= committed_epoch:
            raise HotLogError(
                f"the table has epoch {committed_epoch} of the log {directory}, which ends with"
                f" epoch {segments[-1].epoch}: this is an old copy of the log",
                path=str(directory),
                hint="nothing was changed; bring the newest log back, or begin with an empty"
                " directory, if what the old one holds is in the table",
            )
        # Of those that are in the table some may be back: that they go is not made durable.
        require_all([segment for segment in segments if segment.epoch > committed_epoch])
        if not segments:
            segments = [create_segment(directory, number=1, epoch=committed_epoch + 1, sequence=0)]
        log = cls(directory, segments, segment_bytes=segment_bytes, syncs=syncs)
        return log, log._replayed(committed_epoch)

    def _replayed(self, committed_epoch: int) -> Iterator[tuple[int, Scanned]]:
        for segment in self._segments:
            self.sequence = segment.sequence
            if segment.epoch <= committed_epoch:
                continue
            for record in replay(segment, is_last=segment is self._segments[-1]):
                if record.sequence <= self.sequence:
                    message = f"records are out of order in {segment.path}"
                    raise HotLogError(message, path=str(segment.path))
                self.sequence = record.sequence
                yield segment.epoch, record
        self._take_up(self._segments[-1])
        self.drop(committed_epoch)

    def _take_up(self, segment: Segment) -> None:
        with translated("put", str(segment.path)):
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._length = os.fstat(self._descriptor).st_size

    @property
    def epoch(self) -> int:
        """The epoch that records belong to now."""
        return self._segments[-1].epoch

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        return sum(_size(segment) for segment in self._segments[:-1]) + self._length

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def write(self, records: Sequence[tuple[Kind, int, pa.Buffer]]) -> None:
        """Add records; when this returns they are kept, whatever happens to the process.

        What `syncs` keeps them over a loss of power, too. StorageError: none of them was taken.
        HotLogError: nobody knows, and this log takes no more.
        """
        self._require_sound()
        pieces = [piece for record in records for piece in framed(*record)]
        path = str(self._segments[-1].path)
        try:
            with translated("put", path):
                _write_all(self._descriptor, pieces)
        except StorageError:
            self._take_back()
            raise
        self._is_synced = False
        if self._syncs:
            self.sync()
        self._length += sum(memoryview(piece).nbytes for piece in pieces)
        self.sequence = records[-1][1]
        reached(Step.HOT_LOGGED)
        if self._length >= self._segment_bytes:
            self._rotate(self.epoch)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        if self._is_synced:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # What the system could not write it may have forgotten: asking again proves nothing.
            self._failure = error
            self._require_sound()
        self._is_synced = True

    def _take_back(self) -> None:
        """Make the log end where it did before a write that failed half-way."""
        try:
            os.ftruncate(self._descriptor, self._length)
        except OSError as error:
            self._failure = error

    def _require_sound(self) -> None:
        if self._failure is not None:
            path = str(self._segments[-1].path)
            raise HotLogError(
                f"the log {path} could not be written: {self._failure}",
                path=path,
                hint="changes that were acknowledged are kept; whether the last one is will be seen"
                " when the table is opened again",
            ) from self._failure

    def begin_epoch(self) -> int:
        """Let records belong to the next epoch from now on, and return it."""
        self._require_sound()
        self._rotate(self.epoch + 1)
        reached(Step.HOT_FROZEN)
        return self.epoch

    def _rotate(self, epoch: int) -> None:
        # A crash may cut the last segment only: those before it are on the disk as a whole.
        self.sync()
        number = self._segments[-1].number + 1
        segment = create_segment(
            self._directory, number=number, epoch=epoch, sequence=self.sequence
        )
        self._take_up(segment)
        self._segments.append(segment)

    def drop(self, epoch: int) -> None:
        """Delete the segments up to `epoch`, which is in the table; the oldest first."""
        while self._segments[0].epoch <= epoch:
            with translated("delete", str(self._segments[0].path)):
                self._segments[0].path.unlink(missing_ok=True)
            del self._segments[0]
            reached(Step.HOT_DROPPING)

    def close(self) -> None:
        if self._descriptor >= 0:
            try:
                if self._failure is None:
                    self.sync()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def _size(segment: Segment) -> int:
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:  # dropped meanwhile
        return 0


def _write_all(descriptor: int, pieces: Sequence[bytes | pa.Buffer]) -> None:
    left = [memoryview(piece) for piece in pieces]
    while left:
        written = os.writev(descriptor, left[:_PIECES])
        while left and written >= left[0].nbytes:
            written -= left[0].nbytes
            del left[0]
        if written:
            left[0] = left[0][written:]
