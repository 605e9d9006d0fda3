"""Group commit of changes: logged in groups, then visible, all in one order.

A caller that finds no other thread writing encodes and writes all waiting changes, with one sync of
the disk, and the other callers wait for it. Then the turn goes to the first of those that came
since. It waits for the callers of the last group to come back, for half as long as a sync takes at
most. So the slower the disk is, the more changes share a sync, and a lone caller never waits.

One thread encodes for all, because Arrow releases the interpreter's lock several times for each
change: threads that encode at the same time take it from each other, which costs more than the
encoding.

The thread that writes may be interrupted at any place. Changes that are in the log become visible
even then, so that memory and log hold the same; and the turn to write is always passed on.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import HotTierError, LakehandError
from lakehand.hot.segments import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.hot.segments import Encoded, Kind
    from lakehand.hot.write_ahead_log import WriteAheadLog

_ABOUT_THE_CHANGE = (LakehandError, pa.ArrowException, MemoryError)
#: A shorter wait costs more than it brings: a thread sleeps no less than this.
_SHORTEST_WAIT_SECONDS = 50e-6
#: Of a disk that is this slow a short wait is enough.
_LONGEST_WAIT_SECONDS = 1e-3


class _Ticket:
    """A change that a caller waits for."""

    __slots__ = (
        "content",
        "encode",
        "entry",
        "failure",
        "is_abandoned",
        "is_done",
        "kind",
        "reserved",
        "signal",
    )

    def __init__(self, kind: Kind, encode: Callable[[], Encoded], reserved: int) -> None:
        self.kind, self.encode = kind, encode
        #: Memory that was taken for the change.
        self.reserved = reserved
        #: Both are there when the change is encoded.
        self.content: pa.Buffer | None = None
        self.entry: Entry | None = None
        self.is_done = False
        #: Its caller was interrupted, and may use the memory of its rows for others.
        self.is_abandoned = False
        self.failure: BaseException | None = None
        #: Locked until there is something to look at. Cheaper than a condition, of which each wait
        #: makes such a lock, and all who wait would be woken for each.
        self.signal = threading.Lock()
        self.signal.acquire()

    def wake(self) -> None:
        """Let the caller look. To be called with the journal's lock; any number of times."""
        if self.signal.locked():
            self.signal.release()


class Journal:
    """Numbers changes, writes them to the log, and makes them visible."""

    def __init__(
        self,
        log: WriteAheadLog | None,
        publish: Callable[[Sequence[Entry]], None],
        *,
        last: int,
        reserve: Callable[[int], None] = lambda _: None,
        release: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`log` is None where nothing is kept. `last` is the newest sequence that was given.

        What was published once may be published again, which is to change nothing. `reserve` and
        `release` count memory: what an encoded change takes more or less than its caller has
        reserved, and what changes that were not taken had reserved.
        """
        self._log = log
        self._publish = publish
        self._reserve, self._release = reserve, release
        self._last = last
        # Entered by itself: a thread interrupted while it leaves a condition may keep its lock.
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: list[_Ticket] = []
        #: Whose turn it is to write, and what. If it is None, nothing waits.
        self._writer: _Ticket | None = None
        self._group: list[_Ticket] = []
        #: How many callers there were in and behind the last group, and how long its write took.
        self._expected = 1
        self._write_seconds = 0.0
        #: Held by callers that add changes, and by `paused`.
        self._gate = threading.Lock()
        self._is_closed = False

    def commit(self, kind: Kind, encode: Callable[[], Encoded], *, reserved: int) -> int:
        """Log a change, make it visible, and return its sequence.

        `encode` returns the change; the thread that writes it calls it, which may be another one.
        `reserved` is the memory that the caller has taken for the change.

        Raises what `encode` raises, and as `WriteAheadLog.write` does. A caller that is interrupted
        does not know whether the change was taken; it is both in the log and visible, or neither.
        """
        ticket = None
        try:
            ticket = _Ticket(kind, encode, reserved)
            self._queue(ticket)
            while not ticket.is_done:
                if self._writer is ticket:
                    self._write_as(ticket)
                else:
                    ticket.signal.acquire()
        except BaseException as error:
            if ticket is None:
                self._release(reserved)
            else:
                self._leave(ticket, error)
            raise
        if ticket.failure is not None:
            raise ticket.failure
        return _entry(ticket).sequence

    def _queue(self, ticket: _Ticket) -> None:
        with self._gate, self._lock:
            if self._is_closed:
                raise HotTierError("the hot table was closed; nothing of this change was taken")
            self._waiting.append(ticket)
            if self._writer is None:
                self._writer = ticket
            elif len(self._waiting) == self._expected:
                self._writer.wake()

    def _write_as(self, ticket: _Ticket) -> None:
        """Write all that waits, as it is the turn of `ticket`, and pass the turn on."""
        if len(self._waiting) < self._expected:
            self._wait_for_others(ticket)
        with self._lock:
            self._group, self._waiting = self._waiting, []
        for member in self._group:
            self._encode(member)
        if entries := self._entries():
            self._write(entries)
            self._publish(entries)
        self._expected = len(self._group) + len(self._waiting)
        self._pass_on(ticket, None)

    def _encode(self, member: _Ticket) -> None:
        """Encode and number a change; what is wrong with it is told to its caller alone.

        Other errors are not of the change: a signal may raise anything in this thread.
        """
        try:
            content, rows = member.encode()
        except _ABOUT_THE_CHANGE as error:
            member.failure = error
            return
        # From here on the change is a copy of its rows.
        if member.is_abandoned:
            member.failure = HotTierError("the caller of this change was interrupted")
            return
        more = content.size - member.reserved
        if more > 0:
            self._reserve(more)
        member.reserved = content.size
        if more < 0:
            self._release(-more)
        self._last += 1
        member.content = content
        member.entry = Entry(self._last, member.kind, rows, content.size)

    def _entries(self) -> list[Entry]:
        """Return the changes of the group that could be encoded."""
        return [member.entry for member in self._group if member.entry is not None]

    def _write(self, entries: Sequence[Entry]) -> None:
        if self._log is None:
            return
        started = time.perf_counter()
        contents = [member.content for member in self._group if member.content is not None]
        pairs = zip(entries, contents, strict=True)
        self._log.write([(entry.kind, entry.sequence, content) for entry, content in pairs])
        self._write_seconds = time.perf_counter() - started

    def _wait_for_others(self, ticket: _Ticket) -> None:
        """Let callers of the last group join this one: they wait for a sync anyway."""
        limit = min(self._write_seconds / 2, _LONGEST_WAIT_SECONDS)
        if limit >= _SHORTEST_WAIT_SECONDS:
            # It was unlocked to hand over the turn, or never locked again since.
            ticket.signal.acquire(blocking=False)
            if len(self._waiting) < self._expected:
                ticket.signal.acquire(timeout=limit)

    def _leave(self, ticket: _Ticket, error: BaseException) -> None:
        """End a call that `error` has interrupted: its caller no longer waits."""
        with self._lock:
            ticket.is_abandoned = True
            if not ticket.is_done and ticket not in self._group:
                self._waiting = [other for other in self._waiting if other is not ticket]
                self._refuse(ticket)
            if self._writer is not ticket:
                # The thread that writes the change tells the outcome. It may have got the turn from
                # this one, and be asleep.
                if self._writer is not None:
                    self._writer.wake()
                return
        self._pass_on(ticket, self._settle(error))

    def _settle(self, error: BaseException) -> BaseException | None:
        """Make the group visible if the log has it; else return what its members are told."""
        entries, log = self._entries(), self._log
        is_encoded = all(member.entry or member.failure for member in self._group)
        if is_encoded and not entries:
            return None
        if not is_encoded or (log is not None and log.sequence < entries[-1].sequence):
            return error if isinstance(error, Exception) else _interrupted(log, error)
        try:
            self._publish(entries)
        except BaseException as second:  # noqa: BLE001  told to all members
            if log is not None:
                # Memory lacks what the log has: a flush would drop it from there.
                log.give_up(second)
            return second
        return None

    def _pass_on(self, ticket: _Ticket, failure: BaseException | None) -> None:
        """Tell the group how it ended, and give the turn to the first that waits now.

        It may be called again, if it was interrupted.
        """
        with self._lock:
            for member in self._group:
                if not member.is_done:
                    member.failure = member.failure or failure
                    if member.failure is not None:
                        self._refuse(member)
                member.is_done = True
                member.wake()
            if self._writer is ticket:
                following = self._waiting[0] if self._waiting else None
                self._group = []
                self._writer = following
                if following is not None:
                    following.wake()
                else:
                    self._idle.notify_all()

    def _refuse(self, ticket: _Ticket) -> None:
        """Give the memory of a change back, once: this may be called again after an interrupt."""
        reserved, ticket.reserved = ticket.reserved, 0
        self._release(reserved)

    def close(self) -> None:
        """Take no more changes. To be called while the journal is paused."""
        self._is_closed = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no change be on its way within the block; all before it are visible."""
        with self._gate:
            with self._lock:
                self._idle.wait_for(lambda: self._writer is None)
            yield


def _entry(ticket: _Ticket) -> Entry:
    if ticket.entry is None:
        raise HotTierError("a change was acknowledged before it had a number")
    return ticket.entry


def _interrupted(log: WriteAheadLog | None, error: BaseException) -> HotTierError:
    """Return what is told to those whose change was written by a thread that was interrupted."""
    failure = (log.failure() if log is not None else None) or HotTierError(
        "the thread that was writing this change together with its own was interrupted",
        hint="nothing of the change was taken; try again",
    )
    failure.__cause__ = error
    return failure
