"""When each version was committed, and which version was in force at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError, VersionNotFoundError
from lakehand.formats.delta.log.listing import LogListing, LogSegment, list_log, read_commit
from lakehand.formats.delta.log.log_source import open_log_source
from lakehand.formats.delta.log.log_state import LogState, fold, load_soundly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.storage import Store

_ENABLEMENT_PROPERTY = "delta.inCommitTimestampEnablementVersion"
_TICK = timedelta(milliseconds=1)


def storage_times(listing: LogListing) -> dict[int, datetime]:
    """Return when storage took each commit, made to rise with the versions.

    Clocks of writers differ and copies of tables lose their times, so a commit that seems older
    than the one before it counts as one millisecond younger than that.
    """
    rising: dict[int, datetime] = {}
    previous: datetime | None = None
    for version, at in sorted(listing.commits.items()):
        previous = at if previous is None else max(at, previous + _TICK)
        rising[version] = previous
    return rising


def version_at(store: Store, timestamp: datetime, *, listing: LogListing | None = None) -> int:
    """Return the newest version that was committed at or before `timestamp` (UTC if naive).

    The whole log is listed unless there is a `listing` of it.
    """
    wanted = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    listing = listing or list_log(store)
    times = storage_times(listing)
    boundary = first_with_own_time(_newest_state(store, listing))
    timed = [version for version in times if boundary is not None and version >= boundary]
    version = _search_own_times(store, timed, wanted)
    if version is None:
        before = {v: at for v, at in times.items() if boundary is None or v < boundary}
        version = max((v for v, at in before.items() if at <= wanted), default=None)
    if version is None or version < (listing.earliest_version or 0):
        raise _too_early(store, wanted, listing.earliest_version, times)
    return version


def committed_at(store: Store, listing: LogListing, version: int) -> datetime:
    """Return when a version was committed, as `version_at` understands it.

    A version whose commit is gone counts as one of the time of its checkpoint.
    """
    if version not in listing.commits:
        times = [c.modified_at for c in listing.checkpoints if c.version >= version]
        return min(times, default=max(listing.commits.values()))
    boundary = first_with_own_time(_newest_state(store))
    if boundary is not None and version >= boundary:
        return _own_time(store, version)
    return storage_times(listing)[version]


def first_with_own_time(state: LogState) -> int | None:
    """Return from which version on commits carry their time; None if they do not."""
    return _boundary(state) if state.uses_in_commit_timestamps else None


def _newest_state(store: Store, listing: LogListing | None = None) -> LogState:
    return load_soundly(store, None, lambda segment: _state(store, segment), listing=listing)


def _state(store: Store, segment: LogSegment) -> LogState:
    with open_log_source(store, segment) as source:
        return fold(source.other_actions(), table=store.url, version=segment.version)


def _boundary(state: LogState) -> int:
    text = state.metadata.configuration.get(_ENABLEMENT_PROPERTY, "0")
    try:
        return int(text)
    except ValueError as error:
        raise CorruptLogError(f"{_ENABLEMENT_PROPERTY} is no number: {text!r}") from error


def _search_own_times(store: Store, versions: list[int], wanted: datetime) -> int | None:
    """Return the last of `versions` whose own time is not after `wanted`.

    Own times rise with the versions, so a few commits tell.
    """
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        if _own_time(store, versions[middle]) <= wanted:
            low = middle + 1
        else:
            high = middle
    return versions[low - 1] if low else None


def _own_time(store: Store, version: int) -> datetime:
    claimed = read_commit(store, version).in_commit_timestamp
    if claimed is None:
        message = f"version {version} of {store.url} lacks the time that the table asks of commits"
        raise CorruptLogError(message, table=store.url, version=version)
    return from_milliseconds(claimed)


def _too_early(
    store: Store, wanted: datetime, earliest: int | None, times: Mapping[int, datetime]
) -> VersionNotFoundError:
    latest = max(times, default=None)
    known = None if earliest is None else times.get(earliest)
    since = f" (of {known.isoformat()})" if known else ""
    return VersionNotFoundError(
        f"{store.url} has no version of {wanted.isoformat()} or before; the first one in the log "
        f"is version {earliest}{since}",
        table=store.url,
        earliest=earliest,
        latest=latest,
        hint="ask for a later time; older versions were cleaned away or never were",
    )


def from_milliseconds(value: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
