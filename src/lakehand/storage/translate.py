"""What an object store's client says, as lakehand's errors.

The client's own messages are dropped, also from the chain of causes: they repeat signed requests,
which hold session tokens.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from obstore import exceptions as obstore_errors

from lakehand.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreQuotaError,
    StoreUnreachableError,
    UnsafePathError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Answer", "translated"]

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CONFLICT = 409
_NOT_IMPLEMENTED = 501
# Azure's words for: the key is taken.
_TAKEN_CODES = frozenset({"BlobAlreadyExists", "PathAlreadyExists"})
# Amazon's words for: another request for this key is under way, and yours was turned down.
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED = frozenset({401, 403})
_DENIED_CODES = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "AccessDenied"})
_FULL_CODES = frozenset({"QuotaExceeded", "StorageFull", "XMinioStorageFull"})
_NO_ANSWER = {
    "ConnectionRefused": "the connection was refused",
    "ConnectionReset": "the connection broke",
    "dns error": "the host name is not known",
    "kind: Connect": "no connection could be made",
    "TimedOut": "no answer in time",
    "kind: Timeout": "no answer in time",
    "kind: Interrupted": "the connection broke",
    "error sending request": "the request could not be sent",
    "error decoding response body": "the answer broke off",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is worth knowing of a failed request, and safe to show."""

    status: int | None
    code: str | None
    #: Why there was no answer at all; None if there was one.
    silence: str | None

    @classmethod
    def of(cls, error: Exception) -> Self:
        text = str(error)
        status = _STATUS.search(text)
        code = _CODE.search(text)
        silence = None
        if status is None:
            silence = next((why for sign, why in _NO_ANSWER.items() if sign in text), None)
        return cls(
            status=int(status[1]) if status else None,
            code=code[1] if code else None,
            silence=silence,
        )

    @property
    def reason(self) -> str:
        told = [str(part) for part in (self.status, self.code) if part]
        return self.silence or " ".join(told) or "the store's client gave up"


@contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except (obstore_errors.BaseError, FileNotFoundError, ValueError) as error:
        raise _translate(error, operation, path) from None


def _translate(error: Exception, operation: str, path: str) -> StorageError:
    answer = Answer.of(error)
    kind, hint = _classify(error, answer, operation)
    return kind(
        f"{operation} failed on {path}: {answer.reason}",
        path=path,
        operation=operation,
        store_code=answer.code,
        status=answer.status,
        hint=hint,
    )


def _classify(
    error: Exception, answer: Answer, operation: str
) -> tuple[type[StorageError], str | None]:
    if answer.code == "NoSuchBucket":
        return StorageError, "the bucket does not exist; check its name and the endpoint"
    if isinstance(error, obstore_errors.AlreadyExistsError | obstore_errors.PreconditionError):
        return _classify_taken(answer), None
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError, None
    if isinstance(error, ValueError):
        return UnsafePathError, "object stores take no control characters and no empty segments"
    if _is_unsupported(error, answer) and operation == "put-if-absent":
        return ConditionalPutError, "commits need a store with conditional writes (If-None-Match)"
    return _classify_answer(error, answer)


def _classify_taken(answer: Answer) -> type[StorageError]:
    """Tell a key that is taken from the other conflicts that stores answer in the same way."""
    if answer.status != _CONFLICT or answer.code in _TAKEN_CODES:
        return ObjectExistsError
    return StoreUnreachableError if answer.code in _CONFLICT_CODES else StorageError


def _is_unsupported(error: Exception, answer: Answer) -> bool:
    return isinstance(error, obstore_errors.NotSupportedError) or answer.status == _NOT_IMPLEMENTED


def _classify_answer(error: Exception, answer: Answer) -> tuple[type[StorageError], str | None]:
    denied = obstore_errors.PermissionDeniedError | obstore_errors.UnauthenticatedError
    if answer.code in _FULL_CODES:
        return StoreQuotaError, None
    if isinstance(error, denied) or answer.status in _DENIED or answer.code in _DENIED_CODES:
        return AccessDeniedError, "check the credentials and what they allow"
    if answer.silence or answer.status in _LATER:
        return StoreUnreachableError, "check the endpoint and the network, or try again later"
    return StorageError, None
