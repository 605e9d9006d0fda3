"""Changes on their way in: durable in groups, then visible, all in one order.

Who finds nobody writing writes all that waits, with one sync of the disk, and the others wait for
it. So the slower the disk is, the more changes share a sync.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import HotTierError
from lakehand.hot.records import Entry, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakehand.hot.log import WriteAheadLog
    from lakehand.hot.records import Kind

__all__ = ["Journal"]


@dataclass(kw_only=True, slots=True)
class _Ticket:
    """A change that somebody waits for."""

    entry: Entry
    content: pa.Buffer
    is_done: bool = False
    failure: BaseException | None = None


class Journal:
    """Puts changes in order, has them logged, and hands them on to be seen."""

    def __init__(
        self, log: WriteAheadLog | None, publish: Callable[[Sequence[Entry]], None], *, last: int
    ) -> None:
        """`log` is None where nothing is kept. `last` is the newest sequence that was given."""
        self._log = log
        self._publish = publish
        self._last = last
        self._turn = threading.Condition()
        self._waiting: list[_Ticket] = []
        self._is_busy = False
        self._is_paused = False
        self._is_closed = False

    def commit(self, kind: Kind, content: pa.Buffer) -> int:
        """Log a change, make it visible, and return its sequence.

        What it raises is what the log says: see `WriteAheadLog.write`.
        """
        rows = decode(content)
        with self._turn:
            self._turn.wait_for(lambda: not self._is_paused)
            if self._is_closed:
                raise HotTierError("the hot table was closed; nothing of this change was taken")
            self._last += 1
            entry = Entry(sequence=self._last, kind=kind, rows=rows, bytes=content.size)
            ticket = _Ticket(entry=entry, content=content)
            self._waiting.append(ticket)
            self._turn.wait_for(lambda: ticket.is_done or not self._is_busy)
            group = [] if ticket.is_done else self._take_group()
        if group:
            self._write(group)
        if ticket.failure is not None:
            raise ticket.failure
        return entry.sequence

    def _take_group(self) -> list[_Ticket]:
        group, self._waiting = self._waiting, []
        self._is_busy = True
        return group

    def _write(self, group: Sequence[_Ticket]) -> None:
        failure: BaseException | None = None
        try:
            if self._log is not None:
                self._log.write([(t.entry.kind, t.entry.sequence, t.content) for t in group])
            self._publish([ticket.entry for ticket in group])
        except BaseException as error:  # noqa: BLE001  raised for everybody who waits
            failure = error
        with self._turn:
            for ticket in group:
                ticket.failure = failure
                ticket.is_done = True
            self._is_busy = False
            self._turn.notify_all()

    def close(self) -> None:
        """Take no more changes. To be called while the journal is paused."""
        self._is_closed = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no change be on its way within the block; all before it are visible."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_paused)
            self._is_paused = True
            self._turn.wait_for(lambda: not self._is_busy)
            # Of those who were interrupted while they waited; all others have taken their turn.
            group = self._take_group() if self._waiting else []
        try:
            if group:
                self._write(group)
            yield
        finally:
            with self._turn:
                self._is_paused = False
                self._turn.notify_all()
