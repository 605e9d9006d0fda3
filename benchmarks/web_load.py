"""Clients of a dashboard, for bench_web.py: event streams, and requests at a steady rate.

    python benchmarks/web_load.py URL STREAMS REQUESTS_PER_SECOND MIX

Prints a line when all streams are open, runs until a line comes in, and prints what it measured.
Requests are sent at their times, whether or not earlier ones are answered: their latency counts
from the time at which they were due.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from urllib.parse import urlsplit

#: The part of the requests that open pages send to reload themselves.
RELOADS = 0.9


class Load:
    def __init__(self, url: str, streams: int, rate: int, mix: dict[str, int]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._streams, self._rate = streams, rate
        chance = self._chance = random.Random(1)
        paths = [path for path, count in mix.items() for _ in range(count)]
        self._paths = [chance.choice(paths).format(n=chance.randrange(1, 21)) for _ in range(997)]
        self.latencies: list[float] = []
        self.failed = self.stream_bytes = 0
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        opened = [await self._open_stream() for _ in range(self._streams)]
        listeners = [asyncio.create_task(self._listen(reader)) for reader, _ in opened]
        print("ready", flush=True)
        used, started = time.process_time(), time.monotonic()
        ended = loop.run_in_executor(None, sys.stdin.readline)
        sent = await self._send(ended)
        seconds = time.monotonic() - started
        for listener in listeners:
            listener.cancel()
        self._report(sent, seconds, time.process_time() - used)

    def _report(self, sent: int, seconds: float, core_seconds: float) -> None:
        found = sorted(self.latencies)
        print(
            json.dumps(
                {
                    "rate": sent / seconds,
                    "client_cores": core_seconds / seconds,
                    "p50_ms": 1000 * statistics.median(found),
                    "p99_ms": 1000 * found[int(len(found) * 0.99)],
                    "failed": self.failed,
                    "stream_bytes": self.stream_bytes,
                }
            ),
            flush=True,
        )

    async def _open_stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(self._request("/api/v1/events/stream"))
        await reader.readuntil(b"retry:")
        return reader, writer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(2**16):
            self.stream_bytes += len(chunk)

    async def _send(self, ended: asyncio.Future[str]) -> int:
        started, tasks = time.monotonic(), set()
        count = 0
        while not ended.done():
            due = started + count / self._rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._ask(self._paths[count % len(self._paths)], due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            count += 1
        await asyncio.gather(*tasks)
        return count

    async def _ask(self, path: str, due: float) -> None:
        request = self._request(path)
        while True:
            is_old = bool(self._idle)
            reader, writer = await self._connect()
            writer.write(request)
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                if not is_old:  # The server has closed one that was idle.
                    raise
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
        await reader.readexactly(int(fields[b"content-length"]))
        self.latencies.append(time.monotonic() - due)
        self.failed += b" 200 " not in head.split(b"\r\n", 1)[0]
        self._idle.append((reader, writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._idle:
            return self._idle.pop()
        return await asyncio.open_connection(self._host, self._port)

    def _request(self, path: str) -> bytes:
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._host}:{self._port}", "Accept: text/html"]
        if self._chance.random() < RELOADS:
            lines.append("HX-Request: true")
        return "\r\n".join([*lines, "", ""]).encode()


if __name__ == "__main__":
    asyncio.run(
        Load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])).run()
    )
