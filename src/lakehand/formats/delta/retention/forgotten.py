"""Files that commits removed before a moment: all that vacuum can know without a listing.

Up to which version they are gone stands in a file that delta-spark shares. It never claims files
that are only set aside, or nobody would ever look at them again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import ObjectNotFoundError, RefusedError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.members import load_json
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
    named = Named(store)
    named.take_commits(listing, tuple(range(first, last + 1)), kinds=("remove",))
    return Forgotten(keys=named.keys(), last_version=last)


def note_vacuumed(store: Store, version: int | None) -> None:
    """Note that all files removed up to `version` are gone; None: a listing has told, not this."""
    if version is None and _last_vacuumed(store) < 0:
        return
    state = {} if version is None else {_STATE_MEMBER: version}
    delete_hadoop_sum(store, _STATE_KEY)
    store.put(_STATE_KEY, json.dumps(state, separators=(",", ":")).encode())


def _last_vacuumed(store: Store) -> int:
    try:
        version = load_json(store.get(_STATE_KEY)).get(_STATE_MEMBER, -1)
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
