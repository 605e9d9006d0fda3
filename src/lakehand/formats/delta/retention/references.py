"""Every file that a version within the retention refers to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import RefusedError, VersionNotFoundError
from lakehand.formats.delta.deletion_vectors.format import INLINE, DvDescriptor
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.listing import LogSegment, find_segment, list_log, require_dense
from lakehand.formats.delta.log.log_source import LogSource, open_log_source
from lakehand.formats.delta.log.log_state import load_soundly
from lakehand.formats.delta.log.replay import decoded_path, line_types, live_relation
from lakehand.formats.delta.log.snapshot import load_state
from lakehand.formats.delta.protocol.actions import interval_property, load_json
from lakehand.formats.delta.protocol.names import is_absolute
from lakehand.model.quantities import format_duration
from lakehand.model.retention import Protection
from lakehand.storage.location import check_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.formats.delta.log.short_log import FileKind
    from lakehand.storage import Store

_LOOKS_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"
#: An empty segment, '.' or '..'.
_NOT_NORMAL = r"(^|/)\.{0,2}(/|$)"


#: What might be this file or any other, so that nothing may be deleted.
_LACKS_A_NAME = (
    "path_key IS NULL OR (deletionVector IS NOT NULL AND "
    "(deletionVector.storageType IS NULL OR deletionVector.pathOrInlineDv IS NULL))"
)


class Named:
    """Gathers what actions name: keys below the root, and names of what is named from outside."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: list[pa.ChunkedArray] = []
        self._resolved: list[str] = []
        self._names: set[str] = set()

    def take(self, source: LogSource, query: str) -> None:
        """Take the files of `query`, which has the columns path_key and deletionVector."""
        source.run(f"CREATE OR REPLACE TEMP TABLE named AS {query}")
        if source.run(f"SELECT 1 FROM named WHERE {_LACKS_A_NAME} LIMIT 1"):
            raise source.unusable("it names a file, or a deletion vector, without a path")
        absolute = f"regexp_matches(path_key, '{_LOOKS_ABSOLUTE}')"
        relative = source.stream(f"SELECT DISTINCT path_key FROM named WHERE NOT {absolute}")
        self._keys.append(_checked(relative.read_all()["path_key"]))
        for (path,) in source.run(f"SELECT DISTINCT path_key FROM named WHERE {absolute}"):
            self._take_path(path)
        vectors = source.run(
            "SELECT DISTINCT deletionVector.storageType, deletionVector.pathOrInlineDv FROM named "
            f"WHERE deletionVector IS NOT NULL AND deletionVector.storageType <> '{INLINE}'"
        )
        self._take_vectors(vectors)
        source.run("DROP TABLE named")

    def take_commits(
        self, listing: LogListing, versions: tuple[int, ...], *, kinds: tuple[FileKind, ...]
    ) -> None:
        """Take what these commits name in actions of `kinds`, and their change data."""
        if not versions:
            return
        sizes = {version: listing.commit_bytes[version] for version in versions}
        commits = LogSegment(
            version=versions[-1], checkpoint=None, commits=versions, commit_bytes=sizes
        )
        types = {kind: line_types(kind, ()) for kind in kinds} | {"cdc": "STRUCT(path VARCHAR)"}
        path = decoded_path(f"coalesce({', '.join(f'{kind}.path' for kind in types)})")
        vector = f"coalesce({', '.join(f'{kind}.deletionVector' for kind in kinds)})"
        names_a_file = " OR ".join(f"{kind} IS NOT NULL" for kind in types)
        with open_log_source(self._store, commits) as source:
            self.take(
                source,
                f"SELECT {path} AS path_key, {vector} AS deletionVector "
                f"FROM {source.lines.relation(types)} WHERE {names_a_file}",
            )

    def _take_vectors(self, vectors: Iterable[tuple[str, str]]) -> None:
        for storage_type, text in vectors:
            path = DvDescriptor(
                storage_type=storage_type, path_or_inline=text, size_bytes=0, cardinality=0
            ).path
            if path is not None and is_absolute(path):
                self._take_path(path)
            elif path is not None:
                self._resolved.append(check_key(path))

    def _take_path(self, path: str) -> None:
        """Take an absolute path; one of a store that is unknown here is an error."""
        store, key = self._store.resolve(path)
        if store is self._store:
            self._resolved.append(key)
        self._names.add(key.rpartition("/")[2])

    def keys(self) -> pa.ChunkedArray:
        """Return the keys below the root, distinct."""
        chunks = [chunk.cast(pa.string()) for keys in self._keys for chunk in keys.chunks]
        chunks.append(pa.array(self._resolved, pa.string()))
        return pa.chunked_array([pc.unique(pa.chunked_array(chunks, pa.string()))])

    def names(self) -> pa.ChunkedArray:
        """Return the bare names of files that are named from outside."""
        return pa.chunked_array([pa.array(sorted(self._names), pa.string())])


def _checked(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `keys`; UnsafePathError if a listing would show one of them by another name.

    Some engines read `a//b` as `a/b`. A file that is compared by the wrong name would be garbage.
    """
    suspicious = keys.filter(pc.match_substring_regex(keys, pattern=_NOT_NORMAL))
    for key in suspicious.to_pylist():
        check_key(key)
    return keys


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
    load_soundly(
        store, oldest, lambda segment: _take_oldest(named, store, segment, since), listing=listing
    )
    _take_added(named, store, listing, after=oldest, newest=newest)
    if newest > oldest:
        load_soundly(
            store,
            newest,
            lambda segment: _take_newest(named, store, segment, since),
            listing=listing,
        )
    pinned = Named(store)
    if from_version is not None:
        # A stream reads commits one by one, also those before the first version that can be put
        # together, and its change data feed what they removed.
        before = tuple(v for v in sorted(listing.commits) if from_version < v <= oldest)
        pinned.take_commits(listing, before, kinds=("add", "remove"))
    for version in sorted(set(pinned_versions)):
        load_soundly(
            store, version, lambda segment: _take_pinned(pinned, store, segment), listing=listing
        )
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
        return version_at(store, since, listing=listing)
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


def oldest_streamed_version(checkpoint: Store, *, table_id: str) -> int:
    """Return the oldest version whose files the query still needs.

    It goes on from the end of the last batch that it finished; before the first one it may start
    anywhere, unless it reads a snapshot first. RefusedError if the directory does not tell.
    """
    batches = _numbers(checkpoint, "offsets")
    done = [batch for batch in batches if batch in set(_numbers(checkpoint, "commits"))]
    if not batches:
        raise _unreadable(checkpoint, "it holds no offsets")
    offsets = list(_offsets(checkpoint, done[-1] if done else batches[0], table_id))
    if not offsets:
        raise _unreadable(checkpoint, f"none of its sources is the table {table_id}")
    if not done and not all(offset.get("isStartingVersion") for offset in offsets):
        return 0
    return min(_oldest_needed(offset) for offset in offsets)


def _oldest_needed(offset: dict[str, Any]) -> int:
    """Return the version noted, if that is read as a snapshot, else the one before.

    What is noted is mostly the next, unread version. The change data feed shows rows that
    it removed, from files of the version before.
    """
    version = int(offset["reservoirVersion"])
    return version if offset.get("isStartingVersion") else max(version - 1, 0)


def _numbers(checkpoint: Store, directory: str) -> list[int]:
    names = (info.key.rpartition("/")[2] for info in checkpoint.list(directory))
    return sorted(int(name) for name in names if name.isdigit())


def _offsets(checkpoint: Store, batch: int, table_id: str) -> Iterator[dict[str, Any]]:
    """Yield the positions in this table: one line a source, after a version and the batch's own."""
    lines = checkpoint.get(f"offsets/{batch}").decode().splitlines()
    for line in lines[2:]:
        try:
            offset = load_json(line)
        except ValueError:
            # "-": the source had nothing yet; other sources write what they like.
            continue
        if isinstance(offset, dict) and offset.get("reservoirId") == table_id:
            if not isinstance(offset.get("reservoirVersion"), int):
                raise _unreadable(checkpoint, f"offsets/{batch} names no version")
            yield offset


def _unreadable(checkpoint: Store, reason: str) -> RefusedError:
    return RefusedError(
        f"how far the stream of {checkpoint.url} has read cannot be told: {reason}",
        operation="vacuum",
        hint="name the checkpoint directory of a stream that has run, or remove the pin",
    )
