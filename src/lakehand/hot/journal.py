"""Group commit of changes: logged in groups, then visible, all in one order.

A caller that finds no other thread writing writes all waiting changes, with one sync of the disk,
and the other callers wait for it. So the slower the disk is, the more changes share a sync.

The thread that writes may be interrupted at any place. Changes that are in the log become visible
even then, so that memory and log hold the same; and the turn to write is always passed on.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import HotTierError
from lakehand.hot.segments import Entry, Kind, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.hot.write_ahead_log import WriteAheadLog


@dataclass(kw_only=True, slots=True, eq=False)
class _Ticket:
    """A change that a caller waits for, or a turn to write without one."""

    content: pa.Buffer
    entry: Entry | None = None
    is_done: bool = False
    failure: BaseException | None = None


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
        self._turn = threading.Condition(self._lock)
        self._waiting: list[_Ticket] = []
        #: Whose turn it is to write, and what.
        self._writer: _Ticket | None = None
        self._group: list[_Ticket] = []
        #: Held by callers that add changes, and by `paused`.
        self._gate = threading.Lock()
        self._is_closed = False

    def commit(self, kind: Kind, content: pa.Buffer) -> int:
        """Log a change, make it visible, and return its sequence.

        Raises as `WriteAheadLog.write` does. A caller that is interrupted does not know whether the
        change was taken; it is both in the log and visible, or neither.
        """
        ticket = _Ticket(content=content)
        try:
            entry = self._queue(ticket, kind)
            with self._lock:
                self._turn.wait_for(lambda: ticket.is_done or self._writer is None)
                if not ticket.is_done:
                    self._take_turn(ticket)
            self._write_as(ticket)
        except BaseException as error:
            self._leave(ticket, error)
            raise
        if ticket.failure is not None:
            raise ticket.failure
        return entry.sequence

    def _queue(self, ticket: _Ticket, kind: Kind) -> Entry:
        rows, size = decode(ticket.content), ticket.content.size
        with self._gate, self._lock:
            if self._is_closed:
                raise HotTierError("the hot table was closed; nothing of this change was taken")
            self._last += 1
            ticket.entry = entry = Entry(sequence=self._last, kind=kind, rows=rows, bytes=size)
            self._waiting.append(ticket)
        return entry

    def _take_turn(self, ticket: _Ticket) -> None:
        self._group, self._waiting, self._writer = self._waiting, [], ticket

    def _write_as(self, ticket: _Ticket) -> None:
        """Write the group, if it is the turn of `ticket`, and give the turn back."""
        if self._writer is not ticket:
            return
        entries = [_entry(member) for member in self._group]
        if self._log is not None:
            pairs = zip(entries, self._group, strict=True)
            self._log.write([(entry.kind, entry.sequence, m.content) for entry, m in pairs])
        self._publish(entries)
        self._give_back(ticket, None)

    def _leave(self, ticket: _Ticket, error: BaseException) -> None:
        """End a call that `error` has interrupted: its caller no longer waits."""
        with self._lock:
            if not ticket.is_done and ticket not in self._group:
                self._waiting = [other for other in self._waiting if other is not ticket]
                self._on_refused(ticket.content.size)
            if self._writer is not ticket:
                return  # the thread that writes the change tells the outcome
        self._give_back(ticket, self._settle(error))

    def _settle(self, error: BaseException) -> BaseException | None:
        """Make the group visible if the log has it; else return what its members are told."""
        entries, log = [_entry(member) for member in self._group], self._log
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

    def _give_back(self, ticket: _Ticket, failure: BaseException | None) -> None:
        with self._lock:
            for member in self._group:
                if failure is not None and not member.is_done:
                    self._on_refused(member.content.size)
                member.failure, member.is_done = failure, True
            self._turn.notify_all()
            if self._writer is ticket:
                self._writer, self._group = None, []

    def close(self) -> None:
        """Take no more changes. To be called while the journal is paused."""
        self._is_closed = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no change be on its way within the block; all before it are visible."""
        ticket = _Ticket(content=pa.py_buffer(b""))
        with self._gate:
            self._write_waiting(ticket)
            yield

    def _write_waiting(self, ticket: _Ticket) -> None:
        """Wait until no thread writes, and write what still waits."""
        try:
            with self._lock:
                self._turn.wait_for(lambda: self._writer is None)
                if self._waiting:
                    self._take_turn(ticket)
            self._write_as(ticket)
        except BaseException as error:
            is_told = self._writer is ticket and isinstance(error, Exception)
            self._leave(ticket, error)
            if not is_told:
                raise


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
