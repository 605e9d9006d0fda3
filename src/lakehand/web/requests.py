"""Bodies of requests: JSON and forms, neither large nor slow."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from starlette.requests import Request

_MAX_BODY_BYTES = 2**20
#: A body that comes slower than this is not waited for.
_BODY_SECONDS = 15.0
_MAX_FIELDS = 100


class BodyTooLargeError(ValidationError):
    """The body of a request is too large."""


async def read_body(request: Request) -> bytes:
    """Return the body of a request, which may not be large or slow."""
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
    return bytes(body)


async def read_json(request: Request) -> Any:
    """Return the body of a request; ValidationError if it is not JSON."""
    try:
        return json.loads(await read_body(request))
    except (ValueError, RecursionError) as error:
        raise ValidationError("the body of the request is not JSON", field="body") from error


async def read_json_or_nothing(request: Request) -> Any:
    """Return the body of a request; without one, an empty object."""
    body = await read_body(request)
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValidationError("the body of the request is not JSON", field="body") from error


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    try:
        text = (await read_body(request)).decode()
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise ValidationError("the body of the request is not a form", field="body") from error
    return dict(fields)
