"""The write-ahead log of one hot table: a directory that one process at a time has open.

All changes of an epoch are in segments of that epoch, and the first segment of the next epoch is
created before this one is committed. So the newest epoch in the table decides: changes in segments
up to it are in the table, those above it are not.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakehand.errors import HotLogError, StorageError, StoreQuotaError
from lakehand.hot.segments import (
    RECORD_HEADER_BYTES,
    create_segment,
    framed,
    keep_spare,
    list_segments,
    replay,
    require_all,
    segment_from_spare,
    segment_path,
)
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.storage.local_files import translated, translation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakehand.hot.segments import Kind, Scanned, Segment

_logger = get_logger(__name__)
#: Pieces that one call writes at most; the system's limit is 1,024.
_PIECES = 512
_INTERRUPTED = InterruptedError("a write was interrupted, and could not be taken back")


@dataclass(kw_only=True, slots=True)
class _Tail:
    """The segment that takes records. One value, so that all of it changes at once."""

    segment: Segment
    #: -1: it is not open.
    descriptor: int = -1
    #: Bytes that belong to records that were taken.
    length: int = 0
    is_synced: bool = True


class WriteAheadLog:
    """Segments, of which the last one takes records. Calls that write take turns."""

    def __init__(
        self, directory: Path, segments: list[Segment], *, segment_bytes: int, syncs: bool
    ) -> None:
        self._directory = directory
        #: Segments that take no more, by their numbers.
        self._full = {segment.number: segment for segment in segments[:-1]}
        self._tail = _Tail(segment=segments[-1])
        self._segment_bytes = segment_bytes
        self._syncs = syncs
        self._failure: BaseException | None = None
        #: Whether the last try to begin another segment for a full one has failed.
        self._is_stuck = False
        #: The newest change that the log has, or had.
        self.sequence = segments[0].sequence

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
        last = self._tail.segment
        segments = [*self._full.values(), last]
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            self.sequence = max(self.sequence, segment.sequence)
            if segment.epoch <= committed_epoch:
                continue
            for record in replay(segment, following):
                if record.sequence <= self.sequence:
                    message = f"records are out of order in {segment.path}"
                    raise HotLogError(message, path=str(segment.path))
                self.sequence = record.sequence
                yield segment.epoch, record
        self._tail = _taken_up(last)
        self.drop(committed_epoch)

    @property
    def epoch(self) -> int:
        """The epoch that records belong to now."""
        return self._tail.segment.epoch

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        return sum(_size(segment) for segment in tuple(self._full.values())) + self._tail.length

    @property
    def segment_count(self) -> int:
        return len(self._full) + 1

    def write(self, records: Sequence[tuple[Kind, int, pa.Buffer]]) -> None:
        """Add records; when this returns they are kept, whatever happens to the process.

        If the log `syncs`, they survive a loss of power. HotLogError: it is unknown whether they
        are kept, and this log takes no more. After any other error all of them were taken if
        `sequence` is theirs, and none otherwise.
        """
        self._require_sound()
        pieces = [piece for record in records for piece in framed(*record)]
        tail = self._tail
        size = sum(RECORD_HEADER_BYTES + content.size for _, _, content in records)
        length = tail.length + size
        try:
            # Until it is known where the records end: whatever interrupts us, wherever it does.
            self._failure = _INTERRUPTED
            _write_all(tail, pieces, size)
            tail.is_synced = False
            if self._syncs:
                self.sync()
            tail.length, self.sequence, self._failure = length, records[-1][1], None
        except HotLogError:
            raise
        except BaseException:
            self._take_back()
            raise
        reached(Step.HOT_LOGGED)
        if tail.length >= self._segment_bytes:
            self._go_on_elsewhere()

    def _go_on_elsewhere(self) -> None:
        """Begin another segment of this epoch; if it cannot be, the long one grows on.

        What was written is kept: who hears of a failure would write it again.
        """
        try:
            self._rotate(self.epoch)
            self._is_stuck = False
        except StorageError as error:
            if not self._is_stuck:
                message = "The log continues in a full file, because no new one can be created: %s"
                log_event(_logger, logging.WARNING, "hot_log_stuck", message, error.message)
            self._is_stuck = True

    def sync(self) -> None:
        """Bring what was written to the disk."""
        tail = self._tail
        if tail.is_synced:
            return
        try:
            os.fdatasync(tail.descriptor)
        except OSError as error:
            # What the system could not write it may have forgotten: asking again proves nothing.
            self._failure = error
            self._require_sound()
        tail.is_synced = True

    def _take_back(self) -> None:
        """Make the log end where it did before a write that failed, over a loss of power, too.

        HotLogError if it cannot be.
        """
        tail = self._tail
        try:
            os.ftruncate(tail.descriptor, tail.length)
            os.fdatasync(tail.descriptor)
        except OSError as error:
            self._failure = error
            self._require_sound()
        tail.is_synced, self._failure = True, None

    def give_up(self, error: BaseException) -> None:
        """Take no more, because of `error`."""
        self._failure = error

    def failure(self) -> HotLogError | None:
        """Return why the log takes no more; None if it does."""
        if self._failure is None:
            return None
        path = str(self._tail.segment.path)
        return HotLogError(
            f"the log {path} could not be written: {self._failure}",
            path=path,
            hint="changes that were acknowledged are kept; whether the last one is will be seen"
            " when the table is opened again",
        )

    def _require_sound(self) -> None:
        failure = self.failure()
        if failure is not None:
            raise failure from self._failure

    def begin_epoch(self) -> int:
        """Let records belong to the next epoch from now on, and return it; on a full disk, too."""
        self._require_sound()
        self._rotate(self.epoch + 1)
        reached(Step.HOT_FROZEN)
        return self.epoch

    def _rotate(self, epoch: int) -> None:
        # A crash may cut the last segment only: those before it are on the disk as a whole.
        self.sync()
        full = self._tail
        number = full.segment.number + 1
        try:
            tail = _taken_up(self._begun(number, epoch))
        except BaseException:
            self._remove(segment_path(self._directory, number))
            raise
        self._full[full.segment.number] = full.segment
        self._tail = tail
        os.close(full.descriptor)

    def _begun(self, number: int, epoch: int) -> Segment:
        try:
            return create_segment(
                self._directory, number=number, epoch=epoch, sequence=self.sequence
            )
        except StoreQuotaError:
            # Within an epoch the full segment grows on; only the next epoch must have another.
            spare = None
            if epoch != self.epoch:
                spare = segment_from_spare(
                    self._directory, number=number, epoch=epoch, sequence=self.sequence
                )
            if spare is None:
                raise
            return spare

    def _remove(self, path: Path) -> None:
        """Remove a segment that could not be begun: behind it the last one would not be the last.

        A crash may cut that one short, which is damage in any other.
        """
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._failure = error

    def drop(self, epoch: int) -> None:
        """Delete the segments up to `epoch`, which is in the table; the oldest first."""
        for number, segment in sorted(self._full.items()):
            if segment.epoch <= epoch:
                with translated("delete", str(segment.path)):
                    segment.path.unlink(missing_ok=True)
                del self._full[number]
                reached(Step.HOT_DROPPING)
        self._keep_spare()

    def _keep_spare(self) -> None:
        try:
            keep_spare(self._directory)
        except StorageError as error:
            message = "The log has no spare file, and cannot be flushed while its disk is full: %s"
            log_event(_logger, logging.WARNING, "hot_log_no_spare", message, error.message)

    def close(self) -> None:
        tail = self._tail
        if tail.descriptor >= 0:
            try:
                if self._failure is None:
                    self.sync()
            finally:
                self._tail = _Tail(segment=tail.segment, length=tail.length)
                os.close(tail.descriptor)


def _taken_up(segment: Segment) -> _Tail:
    with translated("put", str(segment.path)):
        descriptor = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return _Tail(segment=segment, descriptor=descriptor, length=os.fstat(descriptor).st_size)


def _size(segment: Segment) -> int:
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:  # dropped by another thread
        return 0


def _write_all(tail: _Tail, pieces: Sequence[bytes | pa.Buffer], size: int) -> None:
    """Write pieces, which have `size` bytes together."""
    try:
        written = os.writev(tail.descriptor, pieces[:_PIECES])
        if written < size:
            _write_rest(tail.descriptor, pieces, written)
    except OSError as error:
        raise translation(error, "put", str(tail.segment.path)) from error


def _write_rest(descriptor: int, pieces: Sequence[bytes | pa.Buffer], written: int) -> None:
    """Write all but the first `written` bytes."""
    left = [memoryview(piece) for piece in pieces]
    while True:
        while left and written >= left[0].nbytes:
            written -= left[0].nbytes
            del left[0]
        if not left:
            return
        left[0] = left[0][written:]
        written = os.writev(descriptor, left[:_PIECES])
