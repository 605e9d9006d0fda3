"""Who may send requests: this machine alone, or those who have the token.

Without a token the server listens on the loopback interface only, and takes requests that name it.
A page in a browser of this machine can send requests there too: its Host header names the page's
own site if that was made to resolve to this machine, and its Origin header names it in any case.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from lakehand.errors import ConfigError, RequestRefusedError
from lakehand.service.config import split_address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: Paths that anyone who may connect may ask: they tell nothing but that the server runs.
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_UNAUTHORIZED, _FORBIDDEN = 401, 403


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRules:
    """What a request must have."""

    #: None: none is needed. Never shown.
    token: str | None = None
    #: Names that a Host header may have; None: any.
    hosts: frozenset[str] | None = None

    @classmethod
    def of(cls, address: str, token: str | None) -> Self:
        """Return the rules for an address; ConfigError if it needs a token and there is none."""
        host, _ = split_address(address)
        if token == "":
            raise ConfigError("the token of [web] is empty", hint="set the variable that it names")
        if is_loopback(host):
            return cls(token=token, hosts=_LOOPBACK_NAMES | {host.lower()})
        if token is None:
            raise ConfigError(
                f"the server cannot listen on {address} without a token: other machines reach it",
                hint='set [web] token = "env:NAME", or listen on 127.0.0.1',
            )
        return cls(token=token)

    def __repr__(self) -> str:
        return f"AccessRules(token={'***' if self.token else None}, hosts={self.hosts})"

    def refusal(self, path: str, headers: Headers) -> tuple[int, RequestRefusedError] | None:
        """Return why a request is refused, and with which status; None if it is not."""
        host = headers.get("host", "")
        if self.hosts is not None and _host_name(host) not in self.hosts:
            message = "the Host header of the request does not name this machine"
            hint = "use 127.0.0.1 or localhost; with a token the server may listen elsewhere"
            return _FORBIDDEN, RequestRefusedError(message, hint=hint)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            message = "the request comes from a page of another site"
            return _FORBIDDEN, RequestRefusedError(message)
        if self.token is None or path in _OPEN_PATHS or self._has_token(headers):
            return None
        hint = "send the header Authorization: Bearer TOKEN"
        return _UNAUTHORIZED, RequestRefusedError("the request has no valid token", hint=hint)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, value = headers.get("authorization", "").partition(" ")
        given = value.strip()
        if scheme.lower() == "basic":
            # As clients send what a URL has before its host: https://lakehand:TOKEN@host
            given = _basic_password(given)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.encode(), (self.token or "").encode())


def _basic_password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class AccessCheck:
    """Answers requests that are not allowed, and passes the others on."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refused = self._rules.refusal(scope["path"], Headers(scope=scope))
            if refused is not None:
                status, error = refused
                headers = {"WWW-Authenticate": "Bearer"} if status == _UNAUTHORIZED else None
                answer = JSONResponse({"error": error.to_json()}, status, headers)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
