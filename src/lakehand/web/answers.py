"""Errors as answers: JSON for programs, a page for browsers; neither shows a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from lakehand.errors import (
    JobNotFoundError,
    JobStateError,
    JobStoreError,
    LakehandError,
    NotATableError,
    ObjectNotFoundError,
    RequestRefusedError,
    StorageError,
    StoreUnreachableError,
    TableError,
    UnsafePathError,
    ValidationError,
)
from lakehand.observe import get_logger, log_event
from lakehand.web.middleware import wants_html
from lakehand.web.requests import BodyTooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

_RETRY_AFTER_SECONDS = 5
_logger = get_logger(__name__)

#: The status of each kind of error; the first that fits.
_STATUS: tuple[tuple[type[LakehandError], int], ...] = (
    (BodyTooLargeError, 413),
    (ValidationError, 400),
    (UnsafePathError, 400),
    (JobNotFoundError, 404),
    (JobStateError, 409),
    (RequestRefusedError, 403),
    (JobStoreError, 503),
    (StoreUnreachableError, 503),
    (NotATableError, 422),
    (ObjectNotFoundError, 422),
    (StorageError, 422),
    (TableError, 422),
)


def status_of(error: LakehandError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


async def answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakehandError)  # noqa: S101  it is registered for these
    status, headers = status_of(error), None
    if status == 503:  # noqa: PLR2004  the store is not there now
        headers = {"Retry-After": str(_RETRY_AFTER_SECONDS)}
        log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
    return _answer(request, error.to_json(), status, headers)


async def answer_http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"there is no {request.method} {request.url.path[:200]}"
    document = {"code": "NOT_FOUND", "message": message, "hint": None, "retryable": False}
    return _answer(request, document, status, getattr(error, "headers", None))


async def answer_bug(request: Request, error: Exception) -> Response:
    # The log has the traceback; a message of a library may quote a secret.
    message = f"the server failed: {type(error).__name__}"
    document = {"code": "INTERNAL", "message": message, "hint": None, "retryable": False}
    return _answer(request, document, 500)


def _answer(
    request: Request,
    document: Mapping[str, Any],
    status: int,
    headers: Mapping[str, str] | None = None,
) -> Response:
    if wants_html(request.scope, request.headers):
        from lakehand.web.pages import error_page

        return error_page(request, document, status, headers)
    return JSONResponse({"error": document}, status, headers)
