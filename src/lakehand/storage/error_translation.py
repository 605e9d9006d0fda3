"""Translates errors of the object store client into lakehand's.

The client's messages are dropped, also from the chain of causes: they contain signed requests with
session tokens.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obstore import exceptions as obstore_errors

from lakehand import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
# In the second form obstore tells which of many deletions failed.
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_NOT_FOUND = 404
_CONFLICT = 409
_NOT_IMPLEMENTED = 501
_RANGE_NOT_SATISFIABLE = 416
_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})
_CONDITIONAL = frozenset({"put-if-absent", "put-if-match"})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 307, 308})
_DENIED_CODES = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "AccessDenied"})
_UNKNOWN_KEY_CODES = frozenset({"InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"})
_EXPIRED_CODES = frozenset({"ExpiredToken", "RequestExpired", "TokenRefreshRequired"})
# Amazon's answers name the permission that is missing, also that of a key (kms:GenerateDataKey).
_NAMED_PERMISSION = re.compile(r"not authorized to perform: ([a-z0-9]+:\w+)")
_S3_PERMISSIONS = {
    "get": "s3:GetObject",
    "head": "s3:GetObject",
    "list": "s3:ListBucket",
    "put": "s3:PutObject",
    "copy": "s3:GetObject",
    "put-if-absent": "s3:PutObject",
    "delete": "s3:DeleteObject",
}
_FULL_CODES = frozenset({"QuotaExceeded", "StorageFull", "XMinioStorageFull"})
# Azure's codes for an existing key.
_TAKEN_CODES = frozenset({"BlobAlreadyExists", "PathAlreadyExists"})
# Amazon's codes for a request rejected because of a concurrent one for the same key.
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
# Requested by obstore on cloud machines if it has no other credentials.
_CREDENTIAL_ENDPOINTS = ("/latest/api/token", "/latest/meta-data/", "//169.254.", "//metadata.")
_NO_ANSWER = {
    "ConnectionRefused": "the connection was refused",
    "ConnectionReset": "the connection was lost",
    "dns error": "the host name cannot be resolved",
    "kind: Connect": "the connection failed",
    "TimedOut": "the request timed out",
    "kind: Timeout": "the request timed out",
    "kind: Interrupted": "the connection was lost",
    "error sending request": "the request could not be sent",
    "error decoding response body": "the response was cut off",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The facts of a failed request that are safe to show."""

    operation: str
    kind: type[Exception]
    status: int | None
    code: str | None
    #: Why there was no answer; None if there was one.
    silence: str | None
    #: Whether the request was for credentials, not for objects.
    needs_credentials: bool
    is_redirect: bool
    #: Whether the client found that a range starts after the end of the object it was sent.
    starts_too_late: bool
    #: Permission that the store names as missing.
    permission: str | None = None

    @classmethod
    def of(cls, error: Exception, operation: str) -> Failure:
        text = str(error)
        status = _STATUS.search(text)
        code = _CODE.search(text)
        permission = _NAMED_PERMISSION.search(text)
        silence = next((why for sign, why in _NO_ANSWER.items() if sign in text), None)
        return cls(
            operation=operation,
            kind=type(error),
            status=int(status[1]) if status else None,
            code=code[1] or code[2] if code else None,
            silence=None if status else silence,
            needs_credentials=any(endpoint in text for endpoint in _CREDENTIAL_ENDPOINTS),
            is_redirect="received redirect" in text.lower(),
            starts_too_late="StartTooLarge" in text,
            permission=permission[1] if permission else None,
        )

    @property
    def reason(self) -> str:
        if self.needs_credentials:
            return "no credentials were found"
        answer = [str(part) for part in (self.status, self.code) if part]
        return self.silence or " ".join(answer) or "the client failed"

    @property
    def is_out_of_range(self) -> bool:
        """Whether the requested range starts after the end of the object."""
        return self.status == _RANGE_NOT_SATISFIABLE or self.starts_too_late

    @property
    def is_range_error(self) -> bool:
        """Whether the store rejected the range, or its form."""
        return self.is_out_of_range or (self.status is None and self.silence is None)

    @property
    def is_denied(self) -> bool:
        return self.status in _DENIED or self.code in _DENIED_CODES

    @property
    def is_unsupported(self) -> bool:
        known = self.is_a(NotImplementedError, obstore_errors.NotSupportedError)
        return known or self.status == _NOT_IMPLEMENTED

    @property
    def is_taken(self) -> bool:
        exists = self.is_a(obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError)
        return exists and (self.status != _CONFLICT or self.code in _TAKEN_CODES)

    def is_a(self, *kinds: type[Exception]) -> bool:
        return issubclass(self.kind, kinds)


@dataclass(frozen=True, slots=True)
class _Rule:
    applies: Callable[[Failure], bool]
    error: type[errors.StorageError]
    hint: str | None = None


# The first rule that applies decides.
_RULES = (
    _Rule(
        lambda failure: failure.needs_credentials,
        errors.AccessDeniedError,
        "pass the credentials as options or environment variables; for profiles and SSO of AWS:"
        " pip install 'lakehand[aws]'",
    ),
    _Rule(
        lambda failure: failure.code == "NoSuchBucket",
        errors.StorageError,
        "the bucket does not exist; check its name and the endpoint",
    ),
    _Rule(lambda failure: failure.is_a(FileNotFoundError), errors.ObjectNotFoundError),
    _Rule(
        lambda failure: failure.is_a(ValueError),
        errors.UnsafePathError,
        "keys of object stores must not contain control characters",
    ),
    _Rule(lambda failure: failure.is_taken, errors.ObjectExistsError),
    _Rule(
        lambda failure: failure.operation in _CONDITIONAL and failure.is_unsupported,
        errors.ConditionalPutError,
        "commits need a store with conditional writes (If-None-Match)",
    ),
    _Rule(lambda failure: failure.code in _FULL_CODES, errors.StoreQuotaError),
    _Rule(
        lambda failure: failure.is_denied,
        errors.AccessDeniedError,
        "check the credentials",
    ),
    _Rule(
        lambda failure: (
            failure.silence is not None
            or failure.status in _LATER
            or failure.code in _CONFLICT_CODES
        ),
        errors.StoreUnreachableError,
        "check the endpoint and the network, or retry later",
    ),
    _Rule(
        lambda failure: failure.is_redirect or failure.status in _REDIRECTS,
        errors.StorageError,
        "the bucket may be in another region; set the option region",
    ),
    _Rule(lambda _: True, errors.StorageError),
)


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    """Raise obstore's errors inside the block as lakehand's."""
    try:
        yield
    except (obstore_errors.BaseError, OSError, NotImplementedError, ValueError) as error:
        raise _translate(Failure.of(error, operation), path) from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise errors.StorageError(
            f"{operation} failed on {path}: the client panicked",
            path=path,
            operation=operation,
            hint="check the options for invalid values, such as line breaks",
        ) from None


def refused_request(
    operation: str, path: str, *, status: int, code: str | None, permission: str | None
) -> errors.StorageError:
    """Return the error for the answer to a request that was not sent by obstore."""
    failure = Failure(
        operation=operation,
        kind=FileNotFoundError if status == _NOT_FOUND else OSError,
        status=status,
        code=code,
        silence=None,
        needs_credentials=False,
        is_redirect=False,
        starts_too_late=False,
        permission=permission,
    )
    return _translate(failure, path)


def is_panic(error: BaseException) -> bool:
    """Return whether a Rust library panicked, which is not an Exception in Python."""
    return type(error).__name__ == "PanicException"


def _translate(failure: Failure, path: str) -> errors.StorageError:
    rule = next(rule for rule in _RULES if rule.applies(failure))
    return rule.error(
        f"{failure.operation} failed on {path}: {failure.reason}",
        path=path,
        operation=failure.operation,
        store_code=failure.code,
        status=failure.status,
        hint=_denial_hint(failure, path) or rule.hint,
    )


def _denial_hint(failure: Failure, path: str) -> str | None:
    """Return what to do about a request that the store refused; None for any other failure."""
    if failure.needs_credentials or not failure.is_denied:
        return None
    if failure.code in _EXPIRED_CODES:
        return "the credentials have expired; renew them"
    permission = failure.permission
    is_forbidden = failure.status == _FORBIDDEN or failure.code == "AccessDenied"
    if permission is None and is_forbidden and path.startswith(("s3:", "s3a:")):
        permission = _S3_PERMISSIONS.get(failure.operation)
    if permission is None or failure.code in _UNKNOWN_KEY_CODES:
        return "check the credentials and their permissions"
    return f"the credentials lack the permission {permission}, or are wrong"
