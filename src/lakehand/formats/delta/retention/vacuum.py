"""What vacuum asks of Delta: data file names, removed files, and commits around a vacuum."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ObjectNotFoundError, RefusedError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.files import delete_hadoop_sum
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.listing import LogListing, list_log
from lakehand.formats.delta.protocol.names import LOG_DIRECTORY
from lakehand.formats.delta.retention.references import Named
from lakehand.model.documents import DocumentError, parse_object
from lakehand.model.retention import Deletion, DeletionOutcome, Forgotten
from lakehand.model.work import Change

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from lakehand.storage import Store

#: delta-spark leaves them out where a commit is not atomic without help.
_WITHOUT_ENTRIES = ("s3://", "r2://", "memory://")


def is_wanted(setting: str, store: Store) -> bool:
    """Say whether entries are written, given what the user wants."""
    return setting == "always" or (setting == "auto" and not store.url.startswith(_WITHOUT_ENTRIES))


def start(deletion: Deletion, *, table_retention: timedelta) -> Change:
    """Return the entry that says what is about to be deleted."""
    asked = deletion.asked_retention
    return Change(
        kind="metadata",
        base_version=deletion.version,
        operation="VACUUM START",
        parameters={
            "retentionCheckEnabled": not deletion.allows_short_retention,
            "defaultRetentionMillis": _milliseconds(table_retention),
            "specifiedRetentionMillis": None if asked is None else _milliseconds(asked),
        },
        metrics={"numFilesToDelete": deletion.files, "sizeOfDataToDelete": deletion.bytes},
    )


def ending(deletion: Deletion, outcome: DeletionOutcome) -> Change:
    """Return the entry that says what was deleted."""
    return Change(
        kind="metadata",
        base_version=deletion.version,
        operation="VACUUM END",
        parameters={"status": "COMPLETED" if outcome.is_complete else "FAILED"},
        metrics={
            "numDeletedFiles": outcome.files,
            "numVacuumedDirectories": outcome.directories,
        },
    )


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)


#: Change data is the one hidden directory that vacuum looks into.
_CHANGE_DATA = "_change_data"
_DATA_ENDING = ".parquet"
_VECTOR_ENDING = ".bin"
_VECTOR_NAME = r"(^|/)deletion_vector_[^/]*\.bin$"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNames:
    """Tells data files, deletion vectors and change data by their keys.

    A name that starts with `_` or `.` is hidden, unless it is that of a partition's directory.
    Everything hidden belongs to another program, or to the log, and is not touched.
    """

    #: As directories spell them: by logical and by physical name.
    partition_columns: tuple[str, ...] = ()

    @property
    def first_to_go(self) -> str | None:
        """None: what names files is the log, which is not deleted with them."""
        return None

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether it can be a file of rows, or belongs to one."""
        is_change = pc.starts_with(keys, pattern=f"{_CHANGE_DATA}/")
        below = pc.if_else(is_change, pc.utf8_slice_codeunits(keys, len(_CHANGE_DATA) + 1), keys)
        named = pc.or_(pc.ends_with(keys, pattern=_DATA_ENDING), _is_vector(keys))
        return pc.and_(named, pc.invert(self._is_hidden(below)))

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        if directory == _CHANGE_DATA:
            return True
        name = directory.rpartition("/")[2]
        return not name.startswith(("_", ".")) or name.startswith(self._partition_starts())

    def _is_hidden(self, keys: pa.Array) -> pa.BooleanArray:
        if not any(start[0] in "_." for start in self._partition_starts()):
            return _has_hidden_part(keys)
        starts = "|".join(re.escape(start) for start in self._partition_starts())
        plain = pc.replace_substring_regex(keys, pattern=f"(^|/)({starts})", replacement=r"\1p=")
        return _has_hidden_part(plain)

    def _partition_starts(self) -> tuple[str, ...]:
        return tuple(f"{column}=" for column in self.partition_columns)


def _has_hidden_part(keys: pa.Array) -> pa.BooleanArray:
    """Say of each key whether a part of it begins with `_` or `.`, without a regular expression.

    A million keys pass here in every vacuum.
    """
    found = pc.or_(pc.starts_with(keys, pattern="_"), pc.starts_with(keys, pattern="."))
    for start in ("/_", "/."):
        found = pc.or_(found, pc.match_substring(keys, pattern=start))
    return found


def _is_vector(keys: pa.Array) -> pa.BooleanArray:
    may_be = pc.ends_with(keys, pattern=_VECTOR_ENDING)
    if not pc.any(may_be).as_py():
        return may_be
    return pc.match_substring_regex(keys, pattern=_VECTOR_NAME)


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
        version = parse_object(store.get(_STATE_KEY)).get(_STATE_MEMBER, -1)
    except (ObjectNotFoundError, DocumentError):
        # To look at more commits than needed does no harm.
        return -1
    return version if isinstance(version, int) and not isinstance(version, bool) else -1


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
