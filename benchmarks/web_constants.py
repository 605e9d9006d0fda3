"""The least that a server of event streams and pages can do, for bench_web.py.

    python benchmarks/web_constants.py HOST:PORT EVENTS_PER_SECOND SIZES

It has the HTTP server and the framework of lakehand's, sends bytes of the given sizes without
making them, checks nobody, and reads no store.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

EVENT = b"id: 1\nevent: job.started\ndata: " + b"x" * 150 + b"\n\n"


class Constants:
    def __init__(self, events_per_second: float, sizes: dict[str, int]) -> None:
        self._pause = 1 / events_per_second
        self._answers = {path: b"x" * size for path, size in sizes.items()}
        self._clients: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> Response:
        query = request.url.query
        asked = request.url.path + (f"?{query}" if query else "")
        return Response(self._answers.get(asked, b""), media_type="text/html")

    async def stream(self, _request: Request) -> Response:
        if self._task is None:
            self._task = asyncio.create_task(self._happen())
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._clients.add(queue)
        try:
            yield b"retry: 2000\n\n"
            while True:
                yield await queue.get()
        finally:
            self._clients.discard(queue)

    async def _happen(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            for client in self._clients:
                client.put_nowait(EVENT)


def main() -> None:
    address, events_per_second, sizes = sys.argv[1:]
    host, port = address.split(":")
    constants = Constants(float(events_per_second), json.loads(sizes))
    app = Starlette(
        routes=[
            Route("/api/v1/events/stream", constants.stream),
            Route("/{path:path}", constants.answer),
        ]
    )
    uvicorn.run(app, host=host, port=int(port), log_config=None, access_log=False, ws="none")


if __name__ == "__main__":
    main()
