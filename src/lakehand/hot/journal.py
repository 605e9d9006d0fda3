"""Group commit of changes: logged in groups, then visible, all in one order.

A caller that finds no other thread writing writes all waiting changes, with one sync of the disk,
and the other callers wait for it. Then the turn goes to the first of those that came since. It
waits for the callers of the last group to come back, for half as long as a sync takes at most. So
the slower the disk is, the more changes share a sync, and a lone caller never waits.

The thread that writes may be interrupted at any place. Changes that are in the log become visible
even then, so that memory and log hold the same; and the turn to write is always passed on.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehand.errors import HotTierError
from lakehand.hot.segments import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakehand.hot.segments import Encoded, Kind
    from lakehand.hot.write_ahead_log import WriteAheadLog

#: A shorter wait costs more than it brings: a thread sleeps no less than this.
_SHORTEST_WAIT_SECONDS = 50e-6
#: Of a disk that is this slow a short wait is enough.
_LONGEST_WAIT_SECONDS = 1e-3


class _Ticket:
    """A change that a caller waits for."""

    __slots__ = ("content", "entry", "failure", "is_done", "signal")

    def __init__(self, content: pa.Buffer) -> None:
        self.content = content
        self.entry: Entry | None = None
        self.is_done = False
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
        on_refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`log` is None where nothing is kept. `last` is the newest sequence that was given.

        What was published once may be published again, which is to change nothing. `on_refused` is
        told the size of each change that was not taken.
        """
        self._log = log
        self._publish = publish
        self._on_refused = on_refused
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

    def commit(self, kind: Kind, encoded: Encoded) -> int:
        """Log a change, make it visible, and return its sequence.

        Raises as `WriteAheadLog.write` does. A caller that is interrupted does not know whether the
        change was taken; it is both in the log and visible, or neither.
        """
        ticket = None
        try:
            ticket = _Ticket(encoded.content)
            sequence = self._queue(ticket, kind, encoded.rows)
            while not ticket.is_done:
                if self._writer is ticket:
                    self._write_as(ticket)
                else:
                    ticket.signal.acquire()
        except BaseException as error:
            if ticket is None:
                self._on_refused(encoded.content.size)
            else:
                self._leave(ticket, error)
            raise
        if ticket.failure is not None:
            raise ticket.failure
        return sequence

    def _queue(self, ticket: _Ticket, kind: Kind, rows: pa.Table) -> int:
        with self._gate, self._lock:
            if self._is_closed:
                raise HotTierError("the hot table was closed; nothing of this change was taken")
            self._last = sequence = self._last + 1
            ticket.entry = Entry(sequence, kind, rows, ticket.content.size)
            self._waiting.append(ticket)
            if self._writer is None:
                self._writer = ticket
            elif len(self._waiting) == self._expected:
                self._writer.wake()
        return sequence

    def _write_as(self, ticket: _Ticket) -> None:
        """Write all that waits, as it is the turn of `ticket`, and pass the turn on."""
        if len(self._waiting) < self._expected:
            self._wait_for_others(ticket)
        with self._lock:
            self._group, self._waiting = self._waiting, []
        entries = [_entry(member) for member in self._group]
        if self._log is not None:
            started = time.perf_counter()
            pairs = zip(entries, self._group, strict=True)
            self._log.write([(entry.kind, entry.sequence, m.content) for entry, m in pairs])
            self._write_seconds = time.perf_counter() - started
        self._publish(entries)
        self._expected = len(self._group) + len(self._waiting)
        self._pass_on(ticket, None)

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
            if not ticket.is_done and ticket not in self._group:
                self._waiting = [other for other in self._waiting if other is not ticket]
                self._on_refused(ticket.content.size)
            if self._writer is not ticket:
                # The thread that writes the change tells the outcome. It may have got the turn from
                # this one, and be asleep.
                if self._writer is not None:
                    self._writer.wake()
                return
        self._pass_on(ticket, self._settle(error))

    def _settle(self, error: BaseException) -> BaseException | None:
        """Make the group visible if the log has it; else return what its members are told."""
        entries, log = [_entry(member) for member in self._group], self._log
        if not entries:
            return None
        if log is not None and log.sequence < entries[-1].sequence:
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
                if failure is not None and not member.is_done:
                    self._on_refused(member.content.size)
                member.failure, member.is_done = failure, True
                member.wake()
            if self._writer is ticket:
                following = self._waiting[0] if self._waiting else None
                self._group = []
                self._writer = following
                if following is not None:
                    following.wake()
                else:
                    self._idle.notify_all()

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
        raise HotTierError("a change was to be written before it had a number")
    return ticket.entry


def _interrupted(log: WriteAheadLog, error: BaseException) -> HotTierError:
    """Return what is told to those whose change was written by a thread that was interrupted."""
    failure = log.failure() or HotTierError(
        "the thread that was writing this change together with its own was interrupted",
        hint="nothing of the change was taken; try again",
    )
    failure.__cause__ = error
    return failure
