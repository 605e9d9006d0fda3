"""Events as they happen, as server-sent events.

One task reads the store for all clients of the process. The id of an event is its number in the
store: a client that comes back with `Last-Event-ID` goes on after it, also at another server and
after a restart. On PostgreSQL an event may be committed after one with a larger number; so events
of the last seconds are read again, and may reach a client that comes back twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from lakehand.errors import JobStoreError, ServiceError, ValidationError
from lakehand.web.endpoints import whole_number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from lakehand.service.store.database import Database
    from lakehand.service.store.listings import Event, Listings

#: Between two looks at the store, while someone listens.
_POLL_SECONDS = 0.5
#: A comment after this long keeps proxies from closing the connection.
_KEEP_ALIVE_SECONDS = 15.0
#: How long an event may take from its number to its commit, on PostgreSQL.
_SETTLED_SECONDS = 10.0
#: Clients of one process, and batches that wait for a slow one before it is disconnected.
MAX_CLIENTS, _MAX_WAITING = 300, 64
_BATCH = 500


class TooManyStreamsError(ServiceError):
    """The process has as many event streams as it may."""

    code = "SERVICE_ERROR"
    retryable = True


@dataclass(frozen=True, slots=True)
class Message:
    """An event as it is sent: written once for all clients."""

    id: int
    kind: str
    text: bytes

    @classmethod
    def of(cls, event: Event) -> Self:
        data = json.dumps(event.to_json())
        text = f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"
        return cls(event.id, event.kind, text.encode())

    def is_wanted(self, kind: str | None) -> bool:
        if not kind:
            return True
        return self.kind.startswith(kind[:-1]) if kind.endswith("*") else self.kind == kind


#: What was found at one look at the store, for one client. Empty: nothing happened for a while;
#: None: the stream ends.
Batches = asyncio.Queue[tuple[Message, ...] | None]


class EventFeed:
    """Reads new events once for all clients, while there are any."""

    def __init__(self, database: Database, listings: Listings) -> None:
        self._database = database
        self._listings = listings
        self._clients: set[Batches] = set()
        self._task: asyncio.Task[None] | None = None
        #: All events up to this one are settled; of those above, the ones that were sent.
        self._settled = 0
        self._sent: dict[int, float] = {}
        #: Set from another thread to end all streams: the server is to stop.
        self.ending = threading.Event()

    @property
    def settled(self) -> int:
        """Later events than this one are sent to those who listen now."""
        return self._settled

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Batches]:
        """Give the events from now on; None means that the stream ends."""
        if len(self._clients) >= MAX_CLIENTS:
            raise TooManyStreamsError("too many event streams are open", hint="try again later")
        queue: Batches = asyncio.Queue(_MAX_WAITING)
        self._clients.add(queue)
        try:
            if self._task is None or self._task.done():
                self._settled = await run_in_threadpool(self._listings.last_event_id)
                self._sent.clear()
                self._task = asyncio.create_task(self._poll(), name="lakehand-events")
            yield queue
        finally:
            self._clients.discard(queue)

    async def read_since(self, event_id: int) -> tuple[Message, ...]:
        """Return the events after one, at most a batch of them."""

        def read() -> tuple[Message, ...]:
            found = self._listings.events(after=event_id, limit=_BATCH)
            return tuple(Message.of(event) for event in found)

        return await run_in_threadpool(read)

    async def _poll(self) -> None:
        sent_at = time.monotonic()
        while self._clients:
            try:
                new = await run_in_threadpool(self._read_new)
            except JobStoreError:
                new = ()  # The store is back at some time, and the events with it.
            if new or time.monotonic() - sent_at > _KEEP_ALIVE_SECONDS:
                sent_at = time.monotonic()
                for client in list(self._clients):
                    self._deliver(client, new)
            await asyncio.sleep(_POLL_SECONDS)
            if self.ending.is_set():
                for client in self._clients:
                    _put(client, None)
                return

    def _deliver(self, client: Batches, new: tuple[Message, ...]) -> None:
        if client.full():
            # It comes back, and reads what it has missed from the store.
            self._clients.discard(client)
            client.get_nowait()
            client.put_nowait(None)
        else:
            client.put_nowait(new)

    def _read_new(self) -> tuple[Message, ...]:
        """Return events that were not sent; those that may still get company are read again."""
        found = self._listings.events(after=self._settled, limit=_BATCH)
        new = [event for event in found if event.id not in self._sent]
        self._sent.update({event.id: event.at for event in new})
        if self._database.is_sqlite:  # It has one writer: numbers are in the order of commits.
            settled = [event.id for event in found]
        else:
            now = self._database.time()
            settled = [event.id for event in found if now - event.at > _SETTLED_SECONDS]
        self._settled = max(settled, default=self._settled)
        self._sent = {one: at for one, at in self._sent.items() if one > self._settled}
        return tuple(Message.of(event) for event in new)


def _put(client: Batches, batch: tuple[Message, ...] | None) -> None:
    if not client.full():
        client.put_nowait(batch)


class EventStream:
    """The route of the stream."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    async def answer(self, request: Request) -> Response:
        given = request.headers.get("last-event-id") or request.query_params.get("since")
        kind = request.query_params.get("kind")
        try:
            since = None if not given else whole_number(given, "Last-Event-ID")
        except ValidationError as error:
            return JSONResponse({"error": error.to_json()}, 400)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = self._events(since, kind)
        try:
            first = await anext(stream)
        except TooManyStreamsError as error:
            return JSONResponse({"error": error.to_json()}, 503, {"Retry-After": "30"})
        return StreamingResponse(
            _chained(first, stream), media_type="text/event-stream", headers=headers
        )

    async def _events(self, since: int | None, kind: str | None) -> AsyncIterator[bytes]:
        async with self._feed.listen() as queue:
            # The time after which a browser comes back.
            yield b"retry: 2000\n\n"
            #: Those that are sent from the store, and may come with the new ones as well.
            seen: set[int] = set()
            if since is not None:
                settled = self._feed.settled
                async for batch in self._missed(since):
                    seen.update(one.id for one in batch if one.id > settled)
                    yield _joined(batch, kind, set())
            while (new := await queue.get()) is not None:
                yield _joined(new, kind, seen) if new else b": still here\n\n"

    async def _missed(self, since: int) -> AsyncIterator[tuple[Message, ...]]:
        """Yield what the store has after an event."""
        while missed := await self._feed.read_since(since):
            yield missed
            since = missed[-1].id


def _joined(batch: tuple[Message, ...], kind: str | None, seen: set[int]) -> bytes:
    wanted = (one for one in batch if one.id not in seen and one.is_wanted(kind))
    return b"".join(one.text for one in wanted)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        if part:
            yield part
