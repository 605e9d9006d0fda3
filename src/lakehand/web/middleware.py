"""What every request passes: headers that protect pages, who may send it, and how often."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response

from lakehand.errors import JobStoreError, RequestRefusedError
from lakehand.web.access import (
    FORBIDDEN,
    LOGIN_PATH,
    SAFE_METHODS,
    TOO_MANY,
    UNAUTHORIZED,
    Refusal,
    is_open,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lakehand.web.access import AccessRules, Identity

#: Nothing is loaded from elsewhere, and no script or style stands in a page.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: Changes that one user may ask for at once, and then in a second. Notifications are not counted.
_BURST, _PER_SECOND = 100.0, 20.0
_MAX_USERS = 10_000
_UNCOUNTED = ("/notify", "/api/v1/notify", "/api/v1/events/objects")
#: What a viewer may send there depends on the body: the route refuses what changes something.
SQL_PATH = "/api/v1/sql"
#: Under this key of the scope stands who sends the request.
IDENTITY = "lakehand.identity"


class SecurityHeaders:
    """Adds the headers that browsers obey, and keeps answers out of caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RateLimit:
    """Counts the changes that each user asks for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: What is left to each user, and since when.
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, user: str) -> bool:
        """Count one change; False if there were too many."""
        now = time.monotonic()
        with self._lock:
            if len(self._left) >= _MAX_USERS:
                self._left.clear()
            left, at = self._left.get(user, (_BURST, now))
            left = min(_BURST, left + (now - at) * _PER_SECOND)
            self._left[user] = (max(0.0, left - 1), now)
        return left >= 1


class AccessCheck:
    """Answers requests that are not allowed, and passes the others on with who sent them."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._limit = RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            refused = await self._check(scope, headers)
        except JobStoreError as error:
            await JSONResponse({"error": error.to_json()}, 503)(scope, receive, send)
            return
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await _answer(refused, scope, headers)(scope, receive, send)

    async def _check(self, scope: Scope, headers: Headers) -> Refusal | None:
        method, path = scope["method"], scope["path"]
        address = (scope.get("client") or ("", 0))[0]
        refused = self._rules.refusal(method, headers, address)
        if refused is not None:
            return refused
        if self._rules.asks_store(headers):
            identity = await run_in_threadpool(self._rules.identify, headers, address)
        else:
            identity = self._rules.identify(headers, address)
        scope[IDENTITY] = identity
        if is_open(path):
            return None
        if identity is None:
            hint = "send the header Authorization: Bearer TOKEN"
            error = RequestRefusedError("the request has no valid token", hint=hint)
            return Refusal(status=UNAUTHORIZED, error=error)
        return self._change_refused(identity, method, path)

    def _change_refused(self, identity: Identity, method: str, path: str) -> Refusal | None:
        # Here for every route, also those that are added later: a viewer changes nothing.
        if method in SAFE_METHODS or path == "/logout":
            return None
        if path != SQL_PATH and not identity.may("operator"):
            message = f"{identity.name} is a viewer, and may change nothing"
            error = RequestRefusedError(message, hint="use a token with the role operator")
            return Refusal(status=FORBIDDEN, error=error)
        if path not in _UNCOUNTED and not self._limit.take(identity.name):
            error = RequestRefusedError("too many changes at once; try again in a few seconds")
            return Refusal(status=TOO_MANY, error=error)
        return None


def wants_html(scope: Scope, headers: Headers) -> bool:
    """Whether the answer is for a browser."""
    return "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/")


def _answer(refused: Refusal, scope: Scope, headers: Headers) -> Response:
    if refused.status == UNAUTHORIZED and scope["method"] == "GET" and wants_html(scope, headers):
        return RedirectResponse(f"{LOGIN_PATH}?next={quote(scope['path'], safe='/')}", 303)
    extra = {}
    if refused.status == UNAUTHORIZED:
        extra = {"WWW-Authenticate": "Bearer"}
    elif refused.status == TOO_MANY:
        extra = {"Retry-After": "5"}
    return JSONResponse({"error": refused.error.to_json()}, refused.status, extra)
