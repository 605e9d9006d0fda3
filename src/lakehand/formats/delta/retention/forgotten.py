"""Files that commits removed before a moment: all that vacuum can know without a listing.

Up to which version they are gone stands in a file that delta-spark shares. It never claims files
that are only set aside, or nobody would ever look at them again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import ObjectNotFoundError, RefusedError, VersionNotFoundError
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.discovery import LogSegment
from lakehand.formats.delta.log.file_members import decoded_path, line_types
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.names import LOG_DIRECTORY
from lakehand.formats.delta.retention.named import Named
from lakehand.model.retention import Forgotten

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.storage import Store

__all__ = ["forgotten_files", "note_vacuumed"]

_STATE_KEY = f"{LOG_DIRECTORY}/_last_vacuum_info"
_STATE_MEMBER = "latestCommitVersionOutsideOfRetentionWindow"
_NOTHING = Forgotten(keys=pa.chunked_array([], pa.string()), last_version=None)


def forgotten_files(store: Store, *, before: datetime) -> Forgotten:
    """Return what was removed before a moment and since the last vacuum of this kind.

    RefusedError if commits in between are gone: they may have removed more.
    """
    try:
        last = version_at(store, before)
    except VersionNotFoundError:
        return _NOTHING
    first = _last_vacuumed(store) + 1
    if first > last:
        return _NOTHING
    listing = list_log(store)
    _require_commits(store, listing, first, last)
    return Forgotten(keys=_removed(store, listing, first, last), last_version=last)


def note_vacuumed(store: Store, version: int | None) -> None:
    """Note that all files removed up to `version` are gone; None: a listing has told, not this."""
    state = {} if version is None else {_STATE_MEMBER: version}
    store.put(_STATE_KEY, json.dumps(state, separators=(",", ":")).encode())


def _last_vacuumed(store: Store) -> int:
    try:
        version = json.loads(store.get(_STATE_KEY)).get(_STATE_MEMBER, -1)
    except (ObjectNotFoundError, ValueError, AttributeError):
        # To look at more commits than needed does no harm.
        return -1
    return version if isinstance(version, int) else -1


def _require_commits(store: Store, listing: LogListing, first: int, last: int) -> None:
    missing = next((v for v in range(first, last + 1) if v not in listing.commits), None)
    if missing is not None:
        raise RefusedError(
            f"version {missing} is no longer in the log of {store.url}, so which files it removed"
            " cannot be told from the log",
            table=store.url,
            operation="vacuum",
            version=missing,
            hint="use the mode `full`, which lists the files",
        )


def _removed(store: Store, listing: LogListing, first: int, last: int) -> pa.ChunkedArray:
    versions = tuple(range(first, last + 1))
    sizes = {version: listing.commit_bytes[version] for version in versions}
    commits = LogSegment(version=last, checkpoint=None, commits=versions, commit_bytes=sizes)
    named = Named(store)
    with open_log_source(store, commits) as source:
        types = {"remove": line_types("remove", ()), "cdc": "STRUCT(path VARCHAR)"}
        path = decoded_path("coalesce(remove.path, cdc.path)")
        named.take(
            source,
            f"SELECT {path} AS path_key, remove.deletionVector AS deletionVector "
            f"FROM {source.lines.relation(types)} WHERE remove IS NOT NULL OR cdc IS NOT NULL",
        )
    return named.keys()
