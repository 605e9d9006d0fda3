"""Every file that some version within a promise needs.

A file of any version from the oldest promised one on is live there already, or was added by a later
commit. So one replay and the commits after it name them all, even where tombstones have expired.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import RefusedError, VersionNotFoundError
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.discovery import LogSegment, find_segment, require_dense
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.loading import load_soundly
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.snapshot import load_state
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.intervals import interval_property
from lakehand.formats.delta.retention.named import Named
from lakehand.model.quantities import format_duration
from lakehand.model.retention import Protection

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta

    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.formats.delta.log.source import LogSource
    from lakehand.storage import Store

__all__ = ["file_retention", "protected_files", "protected_since"]

_RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"
_DEFAULT_RETENTION = "interval 1 week"


def file_retention(properties: Mapping[str, str]) -> timedelta:
    """Return how long a table remembers, and asks to keep, files that were removed."""
    return interval_property(properties, _RETENTION_PROPERTY, _DEFAULT_RETENTION)


def protected_files(
    store: Store,
    *,
    since: datetime,
    pinned_versions: Collection[int] = (),
    from_version: int | None = None,
) -> Protection:
    """Return the files of every version that was in force at `since` or later, and of pinned ones.

    `from_version` protects all later versions as well, where that goes back further. RefusedError
    if the log does not reach back that far and tombstones do not make up for it.
    """
    listing = list_log(store)
    newest = find_segment(store).version if listing.last_version is None else listing.last_version
    oldest = _oldest_version(store, listing, since)
    if from_version is not None:
        oldest = min(oldest, max(from_version, listing.earliest_version or 0))
    named = Named(store)
    load_soundly(store, oldest, lambda segment: _take_oldest(named, store, segment, since))
    _take_added(named, store, listing, after=oldest, newest=newest)
    if newest > oldest:
        load_soundly(store, newest, lambda segment: _take_newest(named, store, segment, since))
    pinned = Named(store)
    if from_version is not None:
        # A stream reads commits one by one, also those before the first version that can be put
        # together, and its change feed what they removed.
        before = tuple(v for v in sorted(listing.commits) if from_version < v <= oldest)
        pinned.take_commits(listing, before, kinds=("add", "remove"))
    for version in sorted(set(pinned_versions)):
        load_soundly(store, version, lambda segment: _take_pinned(pinned, store, segment))
    return _protection(named, pinned, oldest=oldest, newest=newest)


def protected_since(store: Store, *, version: int) -> Protection:
    """Return the files that commits after `version` named, for a second look before deleting."""
    listing = list_log(store, start=version)
    newest = max(listing.last_version or version, version)
    named = Named(store)
    _take_added(named, store, listing, after=version, newest=newest)
    return _protection(named, Named(store), oldest=version + 1, newest=newest)


def _protection(named: Named, pinned: Named, *, oldest: int, newest: int) -> Protection:
    return Protection(
        oldest_version=oldest,
        newest_version=newest,
        keys=named.keys(),
        pinned_keys=pinned.keys(),
        names=pa.chunked_array([*named.names().chunks, *pinned.names().chunks], pa.string()),
    )


def _oldest_version(store: Store, listing: LogListing, since: datetime) -> int:
    try:
        return version_at(store, since)
    except VersionNotFoundError:
        earliest = listing.earliest_version
        # The log begins with the table, so there was no other version.
        if earliest is None or (earliest == 0 and 0 in listing.commits):
            return 0
    _require_tombstones(store, earliest, since)
    return earliest


def _require_tombstones(store: Store, earliest: int, since: datetime) -> None:
    """Refuse unless the first checkpoint still remembers all that was removed after `since`."""
    state, written_at = load_soundly(
        store, earliest, lambda segment: (load_state(store, segment), _written_at(segment))
    )
    remembered_since = written_at - file_retention(state.metadata.configuration)
    if since >= remembered_since:
        return
    raise RefusedError(
        f"which files the versions of {store.url} since {since.isoformat()} need is not known: its "
        f"log begins with version {earliest}, which forgot what was removed before "
        f"{remembered_since.isoformat()}",
        table=store.url,
        operation="vacuum",
        version=earliest,
        hint=f"ask for a retention below {format_duration(datetime.now(UTC) - remembered_since)}",
    )


def _written_at(segment: LogSegment) -> datetime:
    times = [*segment.commit_modified_at.values()]
    if segment.checkpoint is not None:
        times.append(segment.checkpoint.modified_at)
    return max(times)


def _take_oldest(named: Named, store: Store, segment: LogSegment, since: datetime) -> None:
    """Take what is live, and what was removed: later checkpoints may have forgotten that."""
    with open_log_source(store, segment) as source:
        _take_live(named, source)
        _take_tombstones(named, source, since)


def _take_newest(named: Named, store: Store, segment: LogSegment, since: datetime) -> None:
    with open_log_source(store, segment) as source:
        _take_tombstones(named, source, since)


def _take_pinned(named: Named, store: Store, segment: LogSegment) -> None:
    with open_log_source(store, segment) as source:
        _take_live(named, source)


def _take_live(named: Named, source: LogSource) -> None:
    relation = live_relation(source, "add", ("deletionVector",))
    named.take(source, f"SELECT path_key, deletionVector FROM {relation}")


def _take_added(
    named: Named, store: Store, listing: LogListing, *, after: int, newest: int
) -> None:
    """Take what the commits after a version added, later removed or not, with their change data."""
    versions = tuple(version for version in sorted(listing.commits) if after < version <= newest)
    require_dense(store, versions, after + 1, newest)
    named.take_commits(listing, versions, kinds=("add",))


def _take_tombstones(named: Named, source: LogSource, since: datetime) -> None:
    """Take what was removed after `since` by the removal's own time, which may be another clock's.

    A removal without a time may have been at any time.
    """
    cutoff = int(since.timestamp() * 1000)
    relation = live_relation(source, "remove", ("deletionTimestamp", "deletionVector"))
    named.take(
        source,
        f"SELECT path_key, deletionVector FROM {relation} "
        f"WHERE coalesce(deletionTimestamp, {cutoff}) >= {cutoff}",
    )
