"""Summaries of tables, to which new commits are applied; the table is read if that cannot be.

A look at a table is one listing of the newest part of its log. What changed since the last summary
is in the commits, which are read one by one; no checkpoint and no data file is.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import LakehandError, ObjectNotFoundError
from lakehand.formats.delta.log.listing import LogListing, list_log, read_commit
from lakehand.formats.delta.log.snapshot import DeltaState, file_keys
from lakehand.formats.delta.protocol.actions import Metadata, Protocol, file_key, row_count
from lakehand.formats.delta.protocol.clustering import CLUSTERING_DOMAIN, is_order_tag
from lakehand.formats.delta.protocol.features import require_read
from lakehand.formats.delta.protocol.names import decode_path, is_absolute
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import (
    PrimitiveType,
    mapping_mode,
    parse_schema,
    physical_name,
)
from lakehand.model.table_summary import (
    NO_FILES,
    UNKNOWN_ROWS,
    FileEntry,
    FileNumbers,
    LogLook,
    TableSummary,
    file_hash,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.protocol.actions import Commit
    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

#: Versions before the last known one that a look lists, too: a checkpoint may be written late.
_LISTED_BEFORE = 100
#: Commits that are applied at most, and their bytes: from the first one where there is no summary.
_APPLIED_COMMITS, _APPLIED_BYTES = 200, 4 * 2**20
#: Summaries of more files are not kept: such a table is read as a whole.
MOST_FILES = 20_000
#: Types whose values have one spelling each.
_ONE_SPELLING = frozenset({"string", "binary"})


class _NotEnoughError(Exception):
    """The commits do not tell all: the table must be read."""


def look_at_log(store: Store, *, known: int | None = None) -> LogLook | None:
    """Return the newest version; None if there is no log. Costs one listing.

    `known` is the version at the last look: only newer ones are listed, and some before it.
    """
    listing = list_log(store, start=max(0, (known or 0) - _LISTED_BEFORE))
    version = listing.last_version
    if version is None:
        return None
    return LogLook(version=version, mark=_mark(listing, version), seen=listing)


def _mark(listing: LogListing, version: int) -> str:
    """Return when storage took a commit, and its size; empty if it is not, or no longer, there."""
    if version not in listing.commits:
        return ""
    modified = int(listing.commits[version].timestamp() * 1e6)
    return f"{modified}:{listing.commit_bytes[version]}"


def update_summary(
    store: Store, look: LogLook, before: TableSummary | None = None
) -> TableSummary | None:
    """Return the summary of the version of `look`: `before` with the commits since then.

    None if the commits do not suffice: some are gone, the table was replaced by another, or it has
    too many files. A log without a checkpoint that is short enough is read from its start.
    """
    listing: LogListing = look.seen
    if before is not None and not _continues(before, look):
        before = None
    first = 0 if before is None else before.version + 1
    versions = range(first, look.version + 1)
    if any(version not in listing.commits for version in versions):
        return None
    size = sum(listing.commit_bytes[version] for version in versions)
    if len(versions) > _APPLIED_COMMITS or size > _APPLIED_BYTES:
        return None
    try:
        update = _Update(store.url, before)
        for version in versions:
            update.add(read_commit(store, version))
        return update.summary(look, _checkpoint_version(listing, before))
    except (_NotEnoughError, ObjectNotFoundError):
        return None


def _continues(before: TableSummary, look: LogLook) -> bool:
    """Say whether the commit that `before` ended with is still the same, and none is later."""
    if before.version > look.version or not before.mark:
        return False
    return before.mark == _mark(look.seen, before.version)


def _checkpoint_version(listing: LogListing, before: TableSummary | None) -> int | None:
    found = listing.newest_checkpoint(None)
    known = None if before is None else before.checkpoint_version
    if found is None or (known is not None and known > found.version):
        return known
    return found.version


class _Update:
    """A summary to which commits are applied, oldest first."""

    def __init__(self, table: str, before: TableSummary | None) -> None:
        self._table = table
        self._before = before
        start = before or TableSummary(version=-1, mark="")
        self._start = start
        self._protocol = _protocol(start.native)
        self._metadata: Metadata | None = None
        self._partition: list[list[str]] = start.native.get("partition", [])
        self._table_id, self._columns = start.table_id, start.partition_columns
        self._properties = start.properties
        self._is_clustered = start.is_clustered
        #: By key: the live file, or None.
        self._newest: dict[int, FileEntry | None] = {}
        #: Files that commits removed, with the size that these tell.
        self._removed: dict[int, int | None] = {}
        self._commits = 0

    def add(self, commit: Commit) -> None:
        self._commits += 1
        if commit.protocol is not None:
            self._take_protocol(commit.protocol)
        if commit.metadata is not None:
            self._take_metadata(commit.metadata)
        clustering = (one for one in commit.domains if one["domain"] == CLUSTERING_DOMAIN)
        self._is_clustered |= any(not one.get("removed") for one in clustering)
        self._take_files(commit)

    def _take_files(self, commit: Commit) -> None:
        added = {self._key(action): action for action in commit.adds}
        removed = {self._key(action): action for action in commit.removes}
        if added.keys() & removed.keys() or len(added) < len(commit.adds):
            # Which of them holds is for the replay of the whole log to say.
            raise _NotEnoughError
        paths = {decode_path(action["path"]) for action in commit.adds}
        for key, action in removed.items():
            self._newest[key] = None
            if decode_path(action["path"]) not in paths:
                self._removed[key] = action.get("size")
        for key, action in added.items():
            self._newest[key] = self._entry(key, action)
            self._removed.pop(key, None)

    def _take_protocol(self, protocol: Protocol) -> None:
        if self._before is not None:
            raise _NotEnoughError
        self._protocol = protocol

    def _take_metadata(self, metadata: Metadata) -> None:
        is_first = self._table_id is None
        partition = partition_types(metadata)
        if not is_first and (metadata.id, partition) != (self._table_id, self._partition):
            raise _NotEnoughError
        self._metadata = metadata
        self._table_id, self._partition = metadata.id, partition
        self._columns = tuple(metadata.partition_columns)
        self._properties = metadata.configuration

    def _key(self, action: Mapping[str, Any]) -> int:
        if is_absolute(action["path"]):
            raise _NotEnoughError
        return file_hash(*file_key(action))

    def _entry(self, key: int, action: Mapping[str, Any]) -> FileEntry:
        rows = row_count(action.get("stats"))
        self._is_clustered |= any(map(is_order_tag, action.get("tags") or ()))
        return FileEntry(
            key=key,
            bytes=action["size"],
            rows=UNKNOWN_ROWS if rows is None else rows,
            deleted=(action.get("deletionVector") or {}).get("cardinality", 0),
            partition=partition_name(action.get("partitionValues") or {}, self._partition),
        )

    def summary(self, look: LogLook, checkpoint_version: int | None) -> TableSummary:
        if self._protocol is None or self._table_id is None:
            raise _NotEnoughError
        if self._metadata is not None:
            require_read(self._protocol, self._metadata, table=self._table, operation="inspect")
        files = self._start.files.apply(self._newest)
        if len(files) > MOST_FILES:
            raise _NotEnoughError
        sizes = self._start.files.sizes_of(self._removed)
        removed = [sizes.get(key, told or 0) for key, told in self._removed.items()]
        return replace(
            self._start,
            version=look.version,
            mark=look.mark,
            table_id=self._table_id,
            properties=self._properties,
            partition_columns=self._columns,
            is_clustered=self._is_clustered,
            checkpoint_version=checkpoint_version,
            commits_applied=self._start.commits_applied + self._commits,
            removed_file_count=self._start.removed_file_count + len(removed),
            removed_bytes=self._start.removed_bytes + sum(removed),
            native={"partition": self._partition, "protocol": self._protocol.to_json()},
            files=files,
        )


def _protocol(native: Mapping[str, Any]) -> Protocol | None:
    return Protocol.from_json(native["protocol"]) if "protocol" in native else None


def partition_types(metadata: Metadata) -> list[list[str]]:
    """Return the physical name and the type of each partition column."""
    schema, mode = parse_schema(metadata.schema_string), mapping_mode(metadata.configuration)
    found = []
    for name in metadata.partition_columns:
        field = schema.find(name)
        if field is None or not isinstance(field.type, PrimitiveType):
            raise _NotEnoughError
        found.append([physical_name(field, mode=mode), field.type.name])
    return found


def partition_name(values: Mapping[str, str | None], types: Sequence[Sequence[str]]) -> str:
    """Return a text that two files have in common if they are of the same partition."""
    if not types:
        return ""
    return json.dumps([_canonical(values.get(name), kind) for name, kind in types])


@functools.lru_cache(maxsize=10_000)
def _canonical(value: str | None, kind: str) -> str | None:
    """Return one spelling for all spellings of a partition value."""
    if not value:
        return None
    if kind in _ONE_SPELLING:
        return value
    try:
        parsed = parse_partition_values(pa.chunked_array([[value]]), PrimitiveType(kind))
    except LakehandError as error:
        raise _NotEnoughError from error
    return str(parsed[0].as_py())


def summarize_snapshot(snapshot: Snapshot, look: LogLook | None = None) -> TableSummary:
    """Return the summary of a version that was read as a whole.

    `look` was taken before the version was read; if it is of the same one, later commits
    can be applied to the summary. Of a table with more than `MOST_FILES` the files are left out.
    """
    state: DeltaState = snapshot.native
    is_same = look is not None and look.version == snapshot.version
    is_updatable = is_same and snapshot.file_count <= MOST_FILES
    tags = pc.struct_field(snapshot.files["native"], "tags")
    return TableSummary(
        version=snapshot.version,
        mark=look.mark if look is not None and is_updatable else "",
        table_id=snapshot.table_id,
        properties=snapshot.properties,
        partition_columns=tuple(snapshot.partition_columns),
        is_clustered=CLUSTERING_DOMAIN in state.domains or _has_order(tags),
        checkpoint_version=snapshot.checkpoint_version,
        native={
            "partition": _partition_types(state.metadata),
            "protocol": state.protocol.to_json(),
        },
        files=_numbers(snapshot, state),
    )


def _partition_types(metadata: Metadata) -> list[list[str]]:
    try:
        return partition_types(metadata)
    except _NotEnoughError:
        return []


def _has_order(tags: pa.ChunkedArray) -> bool:
    names = (name for chunk in tags.chunks for name in pc.unique(chunk.keys).to_pylist())
    return any(map(is_order_tag, names))


def _numbers(snapshot: Snapshot, state: DeltaState) -> FileNumbers:
    if not 0 < snapshot.file_count <= MOST_FILES:
        return NO_FILES
    types = _partition_types(state.metadata)
    columns = snapshot.files.select(["bytes", "rows", "deleted_rows"]).to_pylist()
    raw = pc.struct_field(snapshot.files["native"], "partition_values").to_pylist()
    entries = [
        FileEntry(
            key=file_hash(*key),
            bytes=row["bytes"],
            rows=UNKNOWN_ROWS if row["rows"] is None else row["rows"],
            deleted=row["deleted_rows"],
            partition=partition_name(dict(values or ()), types),
        )
        for key, row, values in zip(file_keys(snapshot.files), columns, raw, strict=True)
    ]
    return FileNumbers.of(entries)
