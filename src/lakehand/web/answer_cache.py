"""Answers to the same question, kept for two seconds: many open pages cost as much as one.

All open pages reload after an event, and at the same time. The first request makes the answer, the
others wait for it or find it. Pages reload when an event is older than an answer may be, so that
they show it. Everyone else gets an answer that was made after the newest event of the store, and
after the last change that was asked for here.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

#: How long an answer is kept. static/live.js reloads pages a little later than this after an event.
KEPT_SECONDS = 2.0
#: Answers that are kept, and how large one may be.
_MAX_ANSWERS, _MAX_BYTES = 256, 2**18


@dataclass(slots=True)
class _Kept:
    """An answer that is being made, or was."""

    answer: asyncio.Task[bytes]
    #: How many changes there were when it was begun.
    changes: int
    #: The newest event at that time; None: it was not asked for.
    event_id: int | None
    at: float = field(default_factory=time.monotonic)


class AnswerCache:
    """Keeps answers. It belongs to the event loop: nothing here is called from other threads."""

    def __init__(
        self, last_event_id: Callable[[], int], *, kept_seconds: float = KEPT_SECONDS
    ) -> None:
        self._last_event_id = last_event_id
        self._kept_seconds = kept_seconds
        self._kept: dict[Hashable, _Kept] = {}
        #: Changes that were asked for here.
        self._changes = 0

    def note_change(self) -> None:
        """Use none of the answers again: something was changed."""
        self._changes += 1

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[bytes]], *, is_reload: bool = False
    ) -> bytes:
        """Return the answer to a question; `make` makes it where none is kept.

        An open page that reloads takes one from before the newest event, too.
        """
        if self._kept_seconds <= 0:
            return await make()
        newest = None if is_reload else await run_in_threadpool(self._last_event_id)
        kept = self._kept.get(key)
        if kept is None or not self._is_usable(kept, newest):
            kept = self._start(key, make, newest)
        # A client that goes away does not end what others wait for.
        return await asyncio.shield(kept.answer)

    def _is_usable(self, kept: _Kept, newest: int | None) -> bool:
        is_young = time.monotonic() - kept.at < self._kept_seconds
        return is_young and kept.changes == self._changes and newest in (None, kept.event_id)

    def _start(
        self, key: Hashable, make: Callable[[], Awaitable[bytes]], newest: int | None
    ) -> _Kept:
        self._kept.pop(key, None)
        if len(self._kept) >= _MAX_ANSWERS:
            del self._kept[next(iter(self._kept))]  # The oldest.
        task = asyncio.ensure_future(_made(make))
        kept = self._kept[key] = _Kept(task, self._changes, newest)
        task.add_done_callback(lambda done: self._forget_unless_kept(key, kept, done))
        return kept

    def _forget_unless_kept(self, key: Hashable, kept: _Kept, done: asyncio.Task[bytes]) -> None:
        has_failed = done.cancelled() or done.exception() is not None
        if (has_failed or len(done.result()) > _MAX_BYTES) and self._kept.get(key) is kept:
            del self._kept[key]


async def _made(make: Callable[[], Awaitable[bytes]]) -> bytes:
    return await make()
