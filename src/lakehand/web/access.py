"""Who may send requests, and what they may do.

Without `auth` the server listens on the loopback interface only, and takes requests that name it.
A page in a browser of this machine can send requests there too: its Host header names the page's
own site if that was made to resolve to this machine, and its Origin header names it in any case.

With tokens, a request has a bearer token or the cookie of the login page. With a proxy, requests
from its addresses name their user in a header, which is not read from other addresses.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import threading
import time
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from lakehand.errors import ConfigError, RequestRefusedError
from lakehand.service.config_sections import WebSection, split_address
from lakehand.service.job_states import ROLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.datastructures import Headers

    from lakehand.service.job_states import AccessRole
    from lakehand.service.store.token_registry import AccessToken

#: Paths that anyone who may connect may ask: they tell nothing but that the server runs.
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
#: Where a token becomes a cookie, and what that page needs.
LOGIN_PATH, _STATIC = "/login", "/static/"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
UNAUTHORIZED, FORBIDDEN, TOO_MANY = 401, 403, 429
#: The prefix lets browsers keep it to this host, and to secure connections.
COOKIE, SECURE_COOKIE = "lakehand", "__Host-lakehand"
#: How long a token that was found is taken for valid: a revoked one ends after that.
_KNOWN_SECONDS = 2.0
_MAX_KNOWN = 10_000
#: Wrong tokens that an address may send in a minute.
_MAX_FAILURES, _FAILURE_SECONDS = 20, 60.0


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
class Identity:
    """Who sends a request."""

    #: What is done is recorded under this name.
    name: str
    role: AccessRole

    def may(self, role: AccessRole) -> bool:
        """Whether the role includes another one.

        >>> Identity(name="x", role="operator").may("viewer")
        True
        """
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a request is not answered, and with which status."""

    status: int
    error: RequestRefusedError


class KnownTokens:
    """Looks tokens up, keeps what was found for a moment, and counts wrong ones by address."""

    def __init__(self, find: Callable[[str], AccessToken | None] | None = None) -> None:
        self._find = find or (lambda _: None)
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Identity]] = {}
        self._failures: dict[str, list[float]] = {}

    def identity_of(self, token: str) -> Identity | None:
        now = time.monotonic()
        with self._lock:
            known = self._known.get(token)
        if known is not None and now - known[0] < _KNOWN_SECONDS:
            return known[1]
        found = self._find(token)
        with self._lock:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known.pop(token, None)
            if found is None:
                return None
            identity = Identity(name=found.name, role=found.role)
            self._known[token] = (now, identity)
        return identity

    def is_known(self, token: str) -> bool:
        """Whether a token was found just now."""
        with self._lock:
            known = self._known.get(token)
        return known is not None and time.monotonic() - known[0] < _KNOWN_SECONDS

    def note_failure(self, address: str) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._failures) >= _MAX_KNOWN:
                self._failures.clear()
            recent = [at for at in self._failures.get(address, []) if now - at < _FAILURE_SECONDS]
            self._failures[address] = [*recent, now][-_MAX_FAILURES:]

    def is_blocked(self, address: str) -> bool:
        """Whether an address has sent too many wrong tokens to be heard now."""
        now = time.monotonic()
        with self._lock:
            failures = self._failures.get(address, ())
        return sum(now - at < _FAILURE_SECONDS for at in failures) >= _MAX_FAILURES


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRules:
    """What a request must have."""

    #: Token with the role admin; None: there is no such one. Never shown.
    token: str | None = None
    #: Names that a Host header may have; None: any.
    hosts: frozenset[str] | None = None
    #: Whether requests need a token or a proxy.
    needs_identity: bool = False
    #: Networks of proxies that name users; empty: none.
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    #: Role of each group that a proxy names.
    roles: Mapping[str, str] = field(default_factory=dict)
    tokens: KnownTokens = field(default_factory=KnownTokens)

    @classmethod
    def of(
        cls,
        address: str,
        token: str | None,
        web: WebSection | None = None,
        *,
        find_token: Callable[[str], AccessToken | None] | None = None,
    ) -> Self:
        """Return the rules for an address; ConfigError if it needs auth and there is none."""
        host, _ = split_address(address)
        web = web or WebSection()
        auth = web.auth or ("none" if token is None else "token")
        _check(address, auth, token, web)
        hosts = frozenset(name.lower() for name in web.allowed_hosts) or None
        if is_loopback(host):
            hosts = _LOOPBACK_NAMES | {host.lower()} | (hosts or frozenset())
        return cls(
            token=token,
            hosts=hosts,
            needs_identity=auth != "none",
            proxies=tuple(ipaddress.ip_network(one, strict=False) for one in web.trusted_proxies),
            user_header=web.user_header,
            groups_header=web.groups_header,
            roles=web.roles or {"*": "viewer"},
            tokens=KnownTokens(find_token),
        )

    def __repr__(self) -> str:
        return f"AccessRules(token={'***' if self.token else None}, hosts={self.hosts})"

    def refusal(self, method: str, headers: Headers, address: str) -> Refusal | None:
        """Return why a request is refused before its sender is known; None if it is not."""
        host = headers.get("host", "")
        if self.hosts is not None and _host_name(host) not in self.hosts:
            message = "the Host header of the request does not name this server"
            hint = "use 127.0.0.1 or localhost, or a name of [web] allowed_hosts"
            return Refusal(status=FORBIDDEN, error=RequestRefusedError(message, hint=hint))
        if self.tokens.is_blocked(address) and not self.is_proxy(address):
            error = RequestRefusedError(
                "too many wrong tokens came from this address; wait a minute"
            )
            return Refusal(status=TOO_MANY, error=error)
        if _is_of_another_site(method, headers, host):
            error = RequestRefusedError("the request comes from a page of another site")
            return Refusal(status=FORBIDDEN, error=error)
        return None

    def asks_store(self, headers: Headers) -> bool:
        """Whether `identify` has to ask the store about the token of a request."""
        token = _bearer(headers) or _cookie(headers)
        return token is not None and not self.tokens.is_known(token)

    def identify(self, headers: Headers, address: str) -> Identity | None:
        """Return who sends a request; None if that is not known. May ask the store."""
        token = _bearer(headers) or _cookie(headers)
        if token is not None:
            return self.identity_of(token, address)
        if not self.needs_identity:
            return Identity(name="web", role="admin")
        if self.is_proxy(address):
            return self._proxied(headers)
        return None

    def identity_of(self, token: str, address: str) -> Identity | None:
        """Return whose token it is; None if it is not valid, which is counted."""
        found = self._known(token)
        if found is None:
            self.tokens.note_failure(address)
        return found

    def _known(self, token: str) -> Identity | None:
        if self.token is not None and hmac.compare_digest(token.encode(), self.token.encode()):
            return Identity(name="token", role="admin")
        found = self.tokens.identity_of(token)
        if found is None and not self.needs_identity:
            # An old cookie of a server that has no auth any more: everyone may do everything.
            return Identity(name="web", role="admin")
        return found

    def is_proxy(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self.proxies)

    def _proxied(self, headers: Headers) -> Identity | None:
        name = headers.get(self.user_header, "").strip()
        if not name or len(headers.getlist(self.user_header)) != 1:
            return None
        given = headers.get(self.groups_header, "")
        groups = {"*", *(group.strip() for group in given.split(","))}
        roles = [role for group, role in self.roles.items() if group in groups]
        known = [role for role in ROLES if role in roles]
        return Identity(name=name[:200], role=known[-1]) if known else None


def is_open(path: str) -> bool:
    """Whether a path is answered without knowing who asks."""
    return path in _OPEN_PATHS or path == LOGIN_PATH or path.startswith(_STATIC)


def _check(address: str, auth: str, token: str | None, web: WebSection) -> None:
    if token == "":
        raise ConfigError("the token of [web] is empty", hint="set the variable that it names")
    if auth == "none" and token is not None:
        raise ConfigError('[web] has a token and auth = "none": remove one of them')
    is_local = is_loopback(split_address(address)[0])
    if auth == "none" and not is_local:
        raise ConfigError(
            f"the server cannot listen on {address} without a token: other machines reach it",
            hint='set [web] auth = "token" and run lakehand service token create, '
            'or set token = "env:NAME", or listen on 127.0.0.1',
        )
    if auth == "none" and web.allowed_hosts:
        message = "[web] allowed_hosts needs auth: others would reach the server without a token"
        raise ConfigError(message, hint='set auth = "token" or auth = "proxy"')
    if (auth == "proxy") != bool(web.trusted_proxies):
        message = '[web] auth = "proxy" and trusted_proxies are set together, or not at all'
        raise ConfigError(message, hint="name the addresses that the proxy connects from")


def _is_of_another_site(method: str, headers: Headers, host: str) -> bool:
    """Whether a browser sends this for a page of another site."""
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != host:
        return True
    if method in SAFE_METHODS or _bearer(headers) is not None:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    # Browsers say where a form was: what carries a cookie and does not say it is refused.
    return origin is None and headers.get("cookie") is not None


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _bearer(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    # As clients send what a URL has before its host: https://lakehand:TOKEN@host
    return _basic_password(value.strip()) if scheme.lower() == "basic" else None


def _cookie(headers: Headers) -> str | None:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    for name in (SECURE_COOKIE, COOKIE):
        if name in cookies:
            return cookies[name].value
    return None


def _basic_password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _host_name(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""
