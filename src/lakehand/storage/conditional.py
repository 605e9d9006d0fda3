"""Whether a store keeps its word on put-if-absent. Commits stand on it, so it is tried out."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehand.errors import ConditionalPutError, StoreUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.storage.location import Location
    from lakehand.storage.options import Connection

__all__ = ["is_trusted", "require_conditional_put"]

_TRUSTED_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".r2.cloudflarestorage.com")
_proved: set[tuple[str | None, str]] = set()
_TRIES = 3


def is_trusted(connection: Connection) -> bool:
    """Say whether the store is known to honour put-if-absent, or the caller vouches for it."""
    if connection.endpoint is None or connection.config.get("conditional_put") == "etag":
        return True
    host = urlsplit(connection.endpoint).hostname or ""
    return f".{host}".endswith(_TRUSTED_HOSTS)


def require_conditional_put(
    location: Location, connection: Connection, refuses_overwrite: Callable[[], bool]
) -> None:
    """Raise ConditionalPutError if the store overwrites where it should refuse.

    Some S3-compatible servers ignore the condition and answer that all is well. Each endpoint and
    bucket is tried once in a process.
    """
    place = (connection.endpoint, location.container)
    if place in _proved or is_trusted(connection):
        return
    if _asked_until_answered(refuses_overwrite):
        _proved.add(place)
        return
    raise ConditionalPutError(
        f"{location.url} overwrote an object that it was told to keep (If-None-Match), so"
        " concurrent commits could destroy each other",
        path=location.url,
        operation="put-if-absent",
        hint="use a store with conditional writes; nothing was committed",
    )


def _asked_until_answered(question: Callable[[], bool]) -> bool:
    """Ask again if no answer came: whoever wants to put something has not put it yet."""
    for _ in range(_TRIES - 1):
        with suppress(StoreUnreachableError):
            return question()
    return question()
