"""A server in front of a real one that loses, cuts off or delays the answers it is told to."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What happens to an answer: nothing is sent, half of it is sent, or it is sent after a while.
LOSE, CUT, DELAY = "lose", "cut", "delay"
#: The request is not forwarded, and answered with 503; or it is carried out, and answered with 500.
REFUSE, FAIL = "refuse", "fail"
#: The request arrives twice, and the second answer is sent.
TWICE = "twice"
_STATUS = {REFUSE: 503, FAIL: 500}
DELAY_SECONDS = 1.5


@dataclass(kw_only=True)
class FaultyProxy:
    """Forwards every request; `fault` says what to do with the answer to a method and path."""

    endpoint: str
    fault: Callable[[str, str], str | None] = lambda method, path: None
    #: The same for the request, before it is forwarded: `REFUSE` or `TWICE`.
    refusal: Callable[[str, str], str | None] = lambda method, path: None
    #: Methods and paths of requests whose answers were not passed on as they were.
    struck: list[tuple[str, str]] = field(default_factory=list)
    #: Methods and paths of all requests, and the bytes of their bodies and answers.
    requests: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0
    #: Added to every request, before it is forwarded.
    latency_seconds: float = 0.0

    def strike_once(self, kind: str, method: str, part: str) -> None:
        """Do `kind` to the first answer to a `method` whose path contains `part`."""

        def fault(asked: str, path: str) -> str | None:
            return kind if asked == method and part in path and not self.struck else None

        self.fault = fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy
    #: Host and port of the real server.
    target: str

    def handle_error(self, *_: object) -> None:
        """Stay silent: clients are killed, and so is the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _handle(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        time.sleep(proxy.latency_seconds)
        before = self._strike(proxy.refusal)
        if before == REFUSE:
            self._answer_status(_STATUS[REFUSE])
            return
        for _ in range(2 if before == TWICE else 1):
            answer, said = self._forward(body)
        proxy.requests.append((self.command, self.path))
        proxy.bytes += len(body) + len(said)
        kind = self._strike(proxy.fault)
        self.close_connection = kind in {LOSE, CUT}
        if kind == LOSE:
            return
        if kind == FAIL:
            self._answer_status(_STATUS[FAIL])
            return
        if kind == DELAY:
            time.sleep(DELAY_SECONDS)
        self._answer(answer, said, len(said) // 2 if kind == CUT else len(said))

    def _strike(self, fault: Callable[[str, str], str | None]) -> str | None:
        kind = fault(self.command, self.path)
        if kind is not None:
            self.server.proxy.struck.append((self.command, self.path))
        return kind

    def _forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.server.target, timeout=60)
        # The host stays as it is: it is signed.
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer, said

    def _answer_status(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def _answer(self, answer: http.client.HTTPResponse, said: bytes, sent: int) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        length = answer.getheader("content-length") if self.command == "HEAD" else None
        self.send_header("content-length", length or str(len(said)))
        self.end_headers()
        self.wfile.write(said[:sent])

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def run_faulty_proxy(target: str) -> Iterator[FaultyProxy]:
    """Run a proxy in this process in front of the server at the URL `target`."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.target = urlsplit(target).netloc
        server.proxy = FaultyProxy(endpoint=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.proxy
        finally:
            server.shutdown()
