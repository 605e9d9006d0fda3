"""One message over HTTP: within a time, and to the named place only."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPConnection

_OK, _REDIRECT = 200, 300


class PostError(OSError):
    """The message was not accepted; `status` is the answer, None: there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def post_json(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> None:
    """Post a JSON document; PostError if it is not accepted in time.

    Redirects are not followed: they would take the message, and its credentials, elsewhere. No
    message of an error quotes the URL or a header.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        with contextlib.closing(connection), _time_limit(connection, seconds):
            headers = {"Content-Type": "application/json", **headers}
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
    except TimeoutError as error:
        raise PostError(f"there was no answer within {seconds:g} s") from error
    except OSError as error:
        raise PostError(f"the connection failed: {error.strerror or error}") from error
    except (HTTPException, ValueError) as error:
        raise PostError(f"the request failed: {type(error).__name__}") from None
    if not _OK <= status < _REDIRECT:
        raise PostError(f"the answer was {status}", status)


@contextlib.contextmanager
def _time_limit(connection: HTTPConnection, seconds: float) -> Iterator[None]:
    """End a connection after a time: its own limit begins again with every byte that comes."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
