"""Requests of S3 that obstore does not offer: parts copied from other objects, and checksums.

Signed by AWS Signature Version 4 and sent with the standard library. A connection whose options
this cannot follow is refused by name, and obstore does the work alone.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import queue
import re
import ssl
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from lakehand import errors
from lakehand.model.quantities import parse_duration
from lakehand.storage.error_translation import refused_request
from lakehand.storage.objects import NotComposable
from lakehand.storage.retry import RetryPolicy, with_retry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.storage.connection_options import Connection
    from lakehand.storage.location import Location

#: Options that are followed here, or do not concern these requests. Any other may change what a
#: request means, such as keys of encryption.
_OPTIONS = frozenset({
    "access_key_id", "conditional_put", "endpoint", "region", "secret_access_key",
    "session_token", "virtual_hosted_style_request",
})  # fmt: skip
_CLIENT_OPTIONS = frozenset({
    "allow_http", "connect_timeout", "pool_idle_timeout", "pool_max_idle_per_host", "read_timeout",
    "timeout", "user_agent",
})  # fmt: skip
#: What obstore reads as true.
_TRUE = frozenset({"1", "true", "on", "yes", "y"})
_DEFAULT_REGION = "us-east-1"
_UNRESERVED = "-_.~"
#: A store is given this much longer to answer for every byte that it copies itself.
_SECONDS_PER_COPIED_BYTE = 1 / (8 * 2**20)
_OK, _ERROR = 200, 300
#: What fails after the status was sent may be repeated.
_FAILED_LATE = 500
_PRECONDITION_FAILED = 412
_CODE = re.compile(rb"<Code>(\w+)</Code>")
_DENIED_PERMISSION = re.compile(rb"not authorized to perform: ([a-z0-9]+:\w+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer to a request that succeeded."""

    headers: Mapping[str, str]
    body: bytes

    def element(self, name: str) -> str | None:
        """Return the text of the first XML element `name`."""
        found = re.search(rb"<%b>([^<]*)</%b>" % (name.encode(), name.encode()), self.body)
        return unescape(found[1].decode()) if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request for an object of the bucket; `name` is its whole name there."""

    method: str
    name: str
    #: For messages.
    operation: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    #: The object that an error is about, if it is another one.
    about: str | None = None
    #: Bytes that the store copies before it answers.
    copied_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """What a request is signed with. Never printed."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)


class S3Requests:
    """Sends signed requests to one bucket. Safe to use from several threads."""

    def __init__(
        self, location: Location, connection: Connection, retry: RetryPolicy | None = None
    ) -> None:
        """Raise NotComposable if the connection has options that cannot be followed here."""
        reason = why_not(location, connection)
        if reason is not None:
            raise NotComposable(reason)
        self._location = location
        self._connection = connection
        self._retry = retry or RetryPolicy()
        self._region = connection.config.get("region", _DEFAULT_REGION)
        self._url = urlsplit(bucket_url(location, connection))
        self._timeout = _seconds(connection, "read_timeout")
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()

    @property
    def bucket(self) -> str:
        return self._location.container

    def url(self, name: str) -> str:
        """Return the URL of an object, for messages."""
        return f"{self._location.scheme}://{self.bucket}/{name}"

    def send(self, request: Request) -> Answer:
        """Send a request that may be repeated, again if it gets no answer. Raises StorageError."""
        return with_retry(partial(self.send_once, request), policy=self._retry)

    def send_once(self, request: Request) -> Answer:
        """Send a request once. Raises StorageError; StoreUnreachableError without an answer.

        NotComposable if the endpoint has a certificate that is not known here.
        """
        url = self.url(request.about or request.name)
        target, headers = self._target(request), self._signed(request)
        connection = self._connect()
        try:
            connection.timeout = self._timeout + request.copied_bytes * _SECONDS_PER_COPIED_BYTE
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            is_sent = False
            # A server that refuses a body does not read it to its end, but says why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, target, request.body, headers)
                is_sent = True
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise _unanswered(error, request.operation, url) from None
        if is_sent:
            self._idle.put(connection)
        else:
            connection.close()
        refused = refused_by(answer.status, body, request.operation, url)
        if refused is not None:
            raise refused
        return Answer(headers={k.lower(): v for k, v in answer.getheaders()}, body=body)

    def close(self) -> None:
        """Close idle connections."""
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def _connect(self) -> http.client.HTTPConnection:
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)

    def _path(self, request: Request) -> str:
        base = self._url.path.rstrip("/")
        return f"{base}/{quote(request.name, safe=_UNRESERVED + '/')}"

    def _target(self, request: Request) -> str:
        query = canonical_query(request.query)
        return f"{self._path(request)}?{query}" if query else self._path(request)

    def _signed(self, request: Request) -> dict[str, str]:
        return signed_headers(
            request.method,
            self._path(request),
            request.query,
            {**request.headers, "host": self._url.netloc},
            request.body,
            keys=self._keys(),
            region=self._region,
            at=datetime.now(UTC),
        )

    def _keys(self) -> Keys:
        found = self._connection.credentials
        if found is not None:
            current = found.current()
            return Keys(
                access_key_id=current.access_key_id,
                secret_access_key=current.secret_access_key,
                session_token=current.session_token,
            )
        config = self._connection.config
        return Keys(
            access_key_id=config["access_key_id"],
            secret_access_key=config["secret_access_key"],
            session_token=config.get("session_token"),
        )


def why_not(location: Location, connection: Connection) -> str | None:
    """Return why requests cannot be made here; None if they can."""
    if location.scheme != "s3":
        return f"stores of {location.scheme}:// do not offer it"
    if location.container.endswith("--x-s3"):
        return "S3 Express does not offer it"
    config = connection.config
    has_keys = "access_key_id" in config and "secret_access_key" in config
    if connection.credentials is None and not has_keys:
        return "the keys are known to obstore only; give a profile, and install lakehand[aws]"
    unknown = sorted({*config} - _OPTIONS | {*connection.client} - _CLIENT_OPTIONS)
    if unknown:
        return f"it does not know the option {unknown[0]}"
    url = urlsplit(bucket_url(location, connection))
    proxies = urllib.request.getproxies()
    if not proxies.keys().isdisjoint({url.scheme, "all"}) and not urllib.request.proxy_bypass(
        url.hostname or ""
    ):
        return "it does not use the proxy of the environment"
    return None


def bucket_url(location: Location, connection: Connection) -> str:
    """Return the URL of the bucket, as obstore makes it."""
    config = connection.config
    is_virtual = config.get("virtual_hosted_style_request", "").lower() in _TRUE
    endpoint = connection.endpoint
    if endpoint is not None:
        return endpoint if is_virtual else f"{endpoint.rstrip('/')}/{location.container}"
    host = f"s3.{config.get('region', _DEFAULT_REGION)}.amazonaws.com"
    if is_virtual:
        return f"https://{location.container}.{host}"
    return f"https://{host}/{location.container}"


def _seconds(connection: Connection, name: str) -> float:
    value = str(connection.client[name])
    try:
        return parse_duration(value).total_seconds()
    except ValueError:
        raise NotComposable(f"it does not know the {name} {value!r}") from None


def _unanswered(error: Exception, operation: str, url: str) -> Exception:
    """Return what is said of a request without an answer; the client's own words may hold keys."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # obstore may know more certificates than this machine does.
        return NotComposable("the certificate of the endpoint is not trusted on this machine")
    if not isinstance(error, OSError | http.client.HTTPException):
        return errors.StorageError(
            f"{operation} failed on {url}: the request cannot be sent",
            path=url,
            operation=operation,
            hint="check the options for invalid values, such as line breaks",
        )
    return errors.StoreUnreachableError(
        f"{operation} failed on {url}: {_silence(error)}",
        path=url,
        operation=operation,
        hint="check the endpoint and the network, or retry later",
    )


def _silence(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the request timed out"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, http.client.IncompleteRead):
        return "the response was cut off"
    return "the connection was lost"


def refused_by(status: int, body: bytes, operation: str, url: str) -> errors.StorageError | None:
    """Return what an answer refuses; None if it does not.

    A copy or a completion may fail after the status was sent: its body says so then.
    """
    code = _CODE.search(body)
    if status < _ERROR and not (code and b"<Error>" in body):
        return None
    if status == _PRECONDITION_FAILED:
        message = f"{operation} failed on {url}: the object was replaced since it was read"
        return errors.ObjectChangedError(message, path=url, operation=operation)
    permission = _DENIED_PERMISSION.search(body)
    return refused_request(
        operation,
        url,
        status=_FAILED_LATE if status == _OK else status,
        code=code[1].decode() if code else None,
        permission=permission[1].decode() if permission else None,
    )


# Signature

_ALGORITHM = "AWS4-HMAC-SHA256"


def canonical_query(query: Mapping[str, str]) -> str:
    """Return a query as it is sent and signed."""
    quoted = partial(quote, safe=_UNRESERVED)
    pairs = sorted((quoted(name), quoted(value)) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed_headers(
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    keys: Keys,
    region: str,
    at: datetime,
) -> dict[str, str]:
    """Return `headers` with those of the signature; all of them are signed."""
    digest = hashlib.sha256(body).hexdigest()
    moment = at.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    every = {**headers, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if keys.session_token:
        every["x-amz-security-token"] = keys.session_token
    names = sorted(every)
    lines = "".join(f"{name}:{' '.join(every[name].split())}\n" for name in names)
    signed = ";".join(names)
    request = "\n".join([method, path, canonical_query(query), lines, signed, digest])
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    every["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key_id}/{scope}, SignedHeaders={signed},"
        f" Signature={signature}"
    )
    return every
