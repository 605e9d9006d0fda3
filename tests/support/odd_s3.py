"""S3 servers as nobody would run them on purpose: each misbehaves in one way."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(kw_only=True)
class OddServer:
    """A server in this process that keeps objects, ignores conditions and may be told to fail."""

    options: dict[str, str]
    objects: dict[str, bytes] = field(default_factory=dict)
    #: Method, path and headers of each request.
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    #: Returns the status and body to answer with, or None: behave.
    answer: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
    #: Store the object, then break the connection.
    loses_answers: bool = False

    def count(self, method: str) -> int:
        return sum(1 for asked, _, _ in self.requests if asked == method)


class _HttpServer(ThreadingHTTPServer):
    odd: OddServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def _handle(self) -> None:
        odd = self.server.odd
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        odd.requests.append((self.command, self.path, dict(self.headers)))
        failure = odd.answer(self.command, self.path)
        if failure is not None:
            self._reply(*failure)
        elif self.command == "PUT":
            self._store(odd, body)
        elif self.path in odd.objects:
            self._reply(200, odd.objects[self.path].decode())
        else:
            self._reply(404, "<Error><Code>NoSuchKey</Code></Error>")

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815  the base class's names

    def _store(self, odd: OddServer, body: bytes) -> None:
        odd.objects[self.path] = body
        if odd.loses_answers:
            self.close_connection = True
        else:
            self._reply(200, "")

    def _reply(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def run_odd_server() -> Iterator[OddServer]:
    """Run a server that the test tells how to behave."""
    with _HttpServer(("127.0.0.1", 0), _Handler) as server:
        server.odd = OddServer(
            options={
                "endpoint": f"http://127.0.0.1:{server.server_port}",
                "region": "us-east-1",
                "access_key_id": "key",
                "secret_access_key": "hush-hush",
                "allow_http": "true",
                "conditional_put": "etag",
            }
        )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.odd
        finally:
            server.shutdown()
            thread.join()
