"""Loading a version past files that cannot be read, wherever the log holds another way to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from lakehand.errors import (
    CorruptFileError,
    CorruptLogError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from lakehand.formats.delta.log.discovery import find_segment
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.formats.delta.log.discovery import LogSegment
    from lakehand.storage import Store

__all__ = ["load_soundly"]

T = TypeVar("T")
_logger = get_logger(__name__)


def load_soundly(store: Store, version: int | None, load: Callable[[LogSegment], T]) -> T:
    """Return what `load` makes of the files of `version` (the newest if None).

    A checkpoint that cannot be read is passed over, and a log that is cleaned while it is read is
    looked at again.
    """
    segment = find_segment(store, version=version)
    distrusted: set[str] = set()
    while True:
        try:
            return load(segment)
        except CorruptFileError as error:
            distrusted.update(segment.checkpoint.keys if segment.checkpoint else ())
            segment = _without(store, segment, distrusted, error)
        except ObjectNotFoundError as error:
            segment = _afresh(store, version, segment, error)


def _without(
    store: Store, segment: LogSegment, distrusted: set[str], error: CorruptFileError
) -> LogSegment:
    """Find another way to the same version, past checkpoints that cannot be read."""
    try:
        other = find_segment(store, version=segment.version, distrusted=distrusted)
    except (CorruptLogError, VersionNotFoundError):
        raise error from None
    if other.checkpoint == segment.checkpoint:
        raise error
    log_event(
        _logger,
        logging.WARNING,
        "checkpoint_ignored",
        "%s; reading the log from %s instead",
        error.message,
        f"version {other.checkpoint.version}" if other.checkpoint else "its start",
        table=store.url,
        path=error.attributes.get("path"),
    )
    return other


def _afresh(
    store: Store, version: int | None, segment: LogSegment, error: ObjectNotFoundError
) -> LogSegment:
    """Find the version again after one of its files has vanished."""
    other = find_segment(store, version=version)
    if other == segment:
        message = f"a file of version {segment.version} of {store.url} vanished: {error.message}"
        raise CorruptLogError(message, table=store.url, version=segment.version) from error
    return other
