"""The routes of the HTTP server."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from lakehand.errors import JobStoreError, LakehandError, UnsafePathError, ValidationError
from lakehand.observe import get_logger, log_event
from lakehand.service.notifications import read_notification, read_object_events
from lakehand.web.access import AccessCheck, AccessRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    from lakehand.service.notifications import Effect, Notification, Notifications
    from lakehand.service.store.database import Database

_MAX_BODY_BYTES = 2**20
#: A body that comes slower than this is not waited for.
_BODY_SECONDS = 15.0
_RETRY_AFTER_SECONDS = 5
#: Tables that wait to be discovered, and how long one is not looked for again.
_MAX_DISCOVERIES, _DISCOVERY_PAUSE = 1000, 60.0
_logger = get_logger(__name__)


class BodyTooLargeError(ValidationError):
    """The body of a request is too large."""


class Discoveries:
    """Looks for tables that nothing is known of but a notification, in the background."""

    def __init__(self, discover: Callable[[str], object]) -> None:
        self._discover = discover
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="lakehand-discoveries")
        self._lock = threading.Lock()
        #: When each table was asked for.
        self._asked: dict[str, float] = {}

    def ask(self, url: str) -> None:
        """Look for a table soon, unless it was looked for just now, or too many wait."""
        now = time.monotonic()
        with self._lock:
            if len(self._asked) >= _MAX_DISCOVERIES:
                asked = self._asked.items()
                self._asked = {one: at for one, at in asked if now - at < _DISCOVERY_PAUSE}
            is_recent = now - self._asked.get(url, -_DISCOVERY_PAUSE) < _DISCOVERY_PAUSE
            if is_recent or len(self._asked) >= _MAX_DISCOVERIES:
                return
            self._asked[url] = now
        self._threads.submit(self._run, url)

    def _run(self, url: str) -> None:
        try:
            self._discover(url)
        except Exception as error:  # noqa: BLE001  the next listing of its source finds the table
            log_event(_logger, logging.WARNING, "discovery_failed", "%s", type(error).__name__)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


class Api:
    """What the routes answer."""

    def __init__(self, notifications: Notifications, database: Database) -> None:
        self._notifications = notifications
        self._database = database
        self._discoveries = Discoveries(notifications.discover)

    async def health(self, _request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> JSONResponse:
        await run_in_threadpool(self._database.time)
        return JSONResponse({"status": "ready"})

    async def notify(self, request: Request) -> JSONResponse:
        notification = read_notification(await _read_json(request))
        effect = await run_in_threadpool(self._receive, notification)
        return JSONResponse({"table": notification.url, "effect": effect}, 202)

    async def object_events(self, request: Request) -> JSONResponse:
        # Formats are imported when the first key is read.
        found = await run_in_threadpool(read_object_events, await _read_json(request))
        effects = [await run_in_threadpool(self._receive, one) for one in found]
        tables = [
            {"table": one.url, "effect": effect} for one, effect in zip(found, effects, strict=True)
        ]
        return JSONResponse({"tables": tables})

    def _receive(self, notification: Notification) -> Effect:
        effect = self._notifications.receive(notification)
        if effect == "to_discover":
            self._discoveries.ask(notification.url)
        return effect

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(self._discoveries.close)


def create_app(notifications: Notifications, database: Database, rules: AccessRules) -> Starlette:
    """Return the application; `rules` say who may use it."""
    api = Api(notifications, database)
    return Starlette(
        routes=[
            Route("/healthz", api.health),
            Route("/readyz", api.ready),
            Route("/notify", api.notify, methods=["POST"]),
            Route("/api/v1/notify", api.notify, methods=["POST"]),
            Route("/api/v1/events/objects", api.object_events, methods=["POST"]),
        ],
        middleware=[Middleware(AccessCheck, rules=rules)],
        exception_handlers={
            LakehandError: _answer_error,
            404: _answer_http_error,
            405: _answer_http_error,
            Exception: _answer_bug,
        },
        lifespan=api.lifespan,
    )


async def _read_json(request: Request) -> Any:
    """Return the body of a request, which may not be large; ValidationError if it is not JSON."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    message = f"the body of a request has at most {_MAX_BODY_BYTES} bytes"
                    raise BodyTooLargeError(message, field="body")
    except TimeoutError as error:
        raise ValidationError("the body of the request did not come in time") from error
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ValidationError("the body of the request is not JSON", field="body") from error


async def _answer_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LakehandError)  # noqa: S101  it is registered for these
    status, headers = 500, None
    if isinstance(error, BodyTooLargeError):
        status = 413
    elif isinstance(error, ValidationError | UnsafePathError):
        status = 400
    elif isinstance(error, JobStoreError):
        status, headers = 503, {"Retry-After": str(_RETRY_AFTER_SECONDS)}
        log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
    return _error(error.to_json(), status, headers)


async def _answer_http_error(request: Request, error: Exception) -> JSONResponse:
    status = getattr(error, "status_code", 404)
    message = f"there is no {request.method} {request.url.path}"
    document = {"code": "NOT_FOUND", "message": message, "hint": None, "retryable": False}
    return _error(document, status, _headers_of(error))


def _headers_of(error: Exception | HTTPException) -> Mapping[str, str] | None:
    return getattr(error, "headers", None)


async def _answer_bug(_request: Request, error: Exception) -> JSONResponse:
    # The log has the traceback; a message of a library may quote a secret.
    message = f"the server failed: {type(error).__name__}"
    document = {"code": "INTERNAL", "message": message, "hint": None, "retryable": False}
    return _error(document, 500)


def _error(
    document: Mapping[str, Any], status: int, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": document}, status, headers)
