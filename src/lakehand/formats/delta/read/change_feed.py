"""The change data feed: the rows that each version inserted, updated and deleted.

A version with change data files is read from these alone. Of other versions, files that were added
are inserts, files that were removed are deletes; of a file that got another deletion
vector, the rows in which the two vectors differ. Commits that do not change data have no changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from lakehand import errors
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor, read_deletion_vector
from lakehand.formats.delta.log import commit_times
from lakehand.formats.delta.log.listing import list_log, read_commit
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.actions import Commit, Metadata, parse_commit
from lakehand.formats.delta.protocol.arrow_types import check_type_changes, to_arrow
from lakehand.formats.delta.protocol.features import property_is_true, require_read
from lakehand.formats.delta.protocol.names import commit_key, decode_path
from lakehand.formats.delta.protocol.schema import (
    CHANGE_TYPE,
    ArrayType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    mapping_mode,
    parse_schema,
    physical_name,
)
from lakehand.formats.delta.read.file_plan import ReadRequest, SourceFile, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy.typing as npt

    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.schema import DeltaType
    from lakehand.model.work import ChangeSpan
    from lakehand.storage import Store

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
_CHANGE_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
)
_TYPE_COLUMN = StructField(CHANGE_TYPE, PrimitiveType("string"))
_IS_ENABLED = property_is_true("delta.enableChangeDataFeed")
_COUNTS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")

#: Commits before the first version whose times decide its own, as in delta-spark: times must rise.
_TIMED_BEFORE = 100

Kind = Literal["insert", "delete", "change"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFile:
    """A file that holds changed rows of one version."""

    version: int
    #: Time of the commit.
    at: datetime
    #: `change`: the file itself says of each row what happened to it.
    kind: Kind
    #: The action of the log.
    action: Mapping[str, Any]
    #: Whether only the deletion vector of the file changed, and its other vector.
    is_pair: bool = False
    other_vector: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        return decode_path(self.action["path"])

    @property
    def bytes(self) -> int:
        return int(self.action.get("size") or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeScan:
    """The changes of some versions. It can be sent to where they are read."""

    store: Store
    first: int
    #: The last version, included; before `first` if there is nothing to read.
    last: int
    #: The table's columns, under which all versions are read.
    columns: tuple[StructField, ...]
    table_schema: StructType
    mode: MappingMode
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    time_zone: str
    #: When storage took the commits, unless they state their time.
    times: Mapping[int, datetime]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that `read` returns."""
        return pa.schema([*to_arrow(StructType(self.columns)), *_CHANGE_FIELDS])

    def for_tasks(self) -> ChangeScan:
        """Return the same for tasks, which are sent the files to read."""
        return replace(self, times={})

    def files(self, version: int) -> tuple[ChangedFile, ...]:
        """Return the files with the changes of one version, always in the same order."""
        try:
            commit = read_commit(self.store, version)
        except errors.ObjectNotFoundError as error:
            raise _gone(self.store, version, "its commit was cleaned from the log") from error
        return tuple(_files_of(commit, self.times[version]))

    def read(self, files: Sequence[ChangedFile] | None = None) -> pa.RecordBatchReader:
        """Stream the changed rows of `files`, else of all versions, one version after another."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(files))

    def _batches(self, files: Sequence[ChangedFile] | None) -> Iterator[pa.RecordBatch]:
        if files is None:
            for version in range(self.first, self.last + 1):
                yield from self._read(self.files(version))
        else:
            yield from self._read(files)

    def _read(self, files: Iterable[ChangedFile]) -> Iterator[pa.RecordBatch]:
        for group in _alike(files):
            first = group[0]
            try:
                rows = read_rows(self._request(first), [self._source(file) for file in group])
                for batch in rows:
                    yield self._with_commit(batch, first)
            except (errors.ObjectNotFoundError, errors.CorruptFileError) as error:
                if not _is_missing(error):
                    raise
                raise _gone(self.store, first.version, "a file was deleted by vacuum") from error

    def _request(self, file: ChangedFile) -> ReadRequest:
        own = (_TYPE_COLUMN,) if file.kind == "change" else ()
        return ReadRequest(
            store=self.store,
            schema=StructType((*self.table_schema.fields, *own)),
            mode=self.mode,
            partition_columns=self.partition_columns,
            properties=self.properties,
            time_zone=self.time_zone,
            columns=(*self.columns, *own),
        )

    def _source(self, file: ChangedFile) -> SourceFile:
        if self.partition_columns and "partitionValues" not in file.action:
            raise errors.CorruptLogError(
                f"version {file.version} of {self.store.url} does not say which partition the file"
                f" {file.path!r} was in",
                table=self.store.url,
                version=file.version,
                path=file.path,
                hint="the writer that removed the file wrote no extended metadata",
            )
        size = file.action.get("size")
        return SourceFile(
            path=file.path,
            size_bytes=int(size or 0),
            add=file.action,
            is_committed=size is not None,
            shown=self._rows_that_differ(file) if file.is_pair else None,
        )

    def _rows_that_differ(self, file: ChangedFile) -> npt.NDArray[np.int64]:
        """Return the rows that are visible in `file`, and not under its other vector."""
        here, there = (
            self._deleted(vector)
            for vector in (file.action.get("deletionVector"), file.other_vector)
        )
        return np.setdiff1d(there, here, assume_unique=True)

    def _deleted(self, vector: Mapping[str, Any] | None) -> npt.NDArray[np.int64]:
        if not vector:
            return np.empty(0, dtype=np.int64)
        bitmap = read_deletion_vector(self.store, DvDescriptor.from_json(vector))
        return np.asarray(bitmap.to_array(), dtype=np.int64)

    def _with_commit(self, batch: pa.RecordBatch, file: ChangedFile) -> pa.RecordBatch:
        count = batch.num_rows
        kinds = [] if file.kind == "change" else [pa.repeat(pa.scalar(file.kind), count)]
        commit = (pa.scalar(file.version, pa.int64()), pa.scalar(file.at, _CHANGE_FIELDS[2].type))
        arrays = [*batch.columns, *kinds, *(pa.repeat(value, count) for value in commit)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _is_missing(error: BaseException) -> bool:
    """Say whether a file, or its deletion vector, is not there; a damaged one is another matter."""
    causes = (error, error.__cause__)
    return any(isinstance(cause, errors.ObjectNotFoundError) for cause in causes)


def _alike(files: Iterable[ChangedFile]) -> Iterator[list[ChangedFile]]:
    """Group files that follow each other and are read in the same way."""
    group: list[ChangedFile] = []
    for file in files:
        if group and (file.version, file.kind) != (group[0].version, group[0].kind):
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _files_of(commit: Commit, stored_at: datetime) -> Iterator[ChangedFile]:
    own = commit.in_commit_timestamp
    at = stored_at if own is None else commit_times.from_milliseconds(own)
    facts: dict[str, Any] = {"version": commit.version, "at": at}
    if commit.cdcs:
        yield from (ChangedFile(kind="change", action=cdc, **facts) for cdc in commit.cdcs)
        return
    if _merged_nothing(commit):
        return
    adds, removes = (
        {
            decode_path(action["path"]): action
            for action in actions
            if action.get("dataChange", True)
        }
        for actions in (commit.adds, commit.removes)
    )
    sides: tuple[tuple[Kind, Any, Any], ...] = (
        ("delete", removes, adds),
        ("insert", adds, removes),
    )
    for kind, here, there in sides:
        for path, action in here.items():
            other = there.get(path)
            vector = None if other is None else other.get("deletionVector")
            yield ChangedFile(
                kind=kind, action=action, is_pair=other is not None, other_vector=vector, **facts
            )


def _changing(actions: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the actions that change data, by path."""
    changing = (action for action in actions if action.get("dataChange", True))
    return {decode_path(action["path"]): action for action in changing}


def _merged_nothing(commit: Commit) -> bool:
    """Say whether a merge changed no row, although it rewrote files."""
    info = commit.commit_info or {}
    metrics = info.get("operationMetrics") or {}
    return info.get("operation") == "MERGE" and all(metrics.get(n) == "0" for n in _COUNTS)


# Which versions, and under which columns


def plan_changes(
    store: Store, span: ChangeSpan, *, columns: Sequence[str] | None, time_zone: str
) -> ChangeScan:
    """Find the versions of `span`, and check that all of them can be read.

    Raises ChangeFeedError where the feed was off, VersionNotFoundError for versions that are not in
    the log, SchemaMismatchError where columns changed in a way that hides or renames values.
    """
    latest = load_state_at(store)
    # After the state: so that the listing has all commits of it.
    listing = list_log(store, start=max((span.from_version or 0) - _TIMED_BEFORE, 0))
    first, last = _resolve(store, listing, span, latest.segment.version)
    times = {
        version: _in_milliseconds(at)
        for version, at in commit_times.storage_times(listing).items()
        if first <= version <= last
    }
    state = latest
    if first <= last:
        state = _read_state(store, latest, span, first, last)
        _check_versions(store, state, times, first, last)
    check_type_changes(state.schema, table=store.url)
    return ChangeScan(
        store=store,
        first=first,
        last=last,
        columns=_chosen(state.schema, columns),
        table_schema=state.schema,
        mode=state.mapping_mode,
        partition_columns=state.metadata.partition_columns,
        properties=state.metadata.configuration,
        time_zone=time_zone,
        times=times,
    )


def _in_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _chosen(schema: StructType, names: Sequence[str] | None) -> tuple[StructField, ...]:
    if names is None:
        return schema.fields
    found = [(name, schema.find(name)) for name in names]
    unknown = next((name for name, column in found if column is None), None)
    if unknown is not None:
        raise errors.UnknownColumnError(unknown, schema.names)
    return tuple(column for _, column in found if column is not None)


def _resolve(store: Store, listing: LogListing, span: ChangeSpan, latest: int) -> tuple[int, int]:
    first, last = span.from_version, span.to_version
    if span.from_timestamp is not None:
        first = _first_since(store, listing, span.from_timestamp)
    if span.to_timestamp is not None:
        last = min(commit_times.version_at(store, span.to_timestamp), latest)
    first = latest if first is None else first
    last = latest if last is None else last
    if first > last and span.from_timestamp is not None and first <= latest:
        return first, last  # No commit between two times.
    if first > last and last <= latest and first <= latest:
        message = f"the first version ({first}) is after the last one ({last})"
        raise errors.ValidationError(message, field="from_version", value=first)
    missing = next((v for v in (first, last) if not 0 <= v <= latest), None)
    if missing is None and first not in listing.commits:
        missing = first
    if missing is not None:
        raise _unknown_version(store, missing, latest)
    return first, last


def _first_since(store: Store, listing: LogListing, moment: datetime) -> int:
    """Return the first version that was committed at `moment` or later."""
    try:
        version = commit_times.version_at(store, moment)
    except errors.VersionNotFoundError:
        return min(listing.commits)
    return version if commit_times.committed_at(store, listing, version) >= moment else version + 1


def _unknown_version(store: Store, version: int, latest: int) -> errors.VersionNotFoundError:
    earliest = min(list_log(store).commits)
    return errors.VersionNotFoundError(
        f"the changes of version {version} of {store.url} are not in the log; it has those of"
        f" versions {earliest} to {latest}",
        table=store.url,
        version=version,
        earliest=earliest,
        latest=latest,
        hint="older commits were cleaned away; versions after the latest do not exist yet",
    )


def _read_state(
    store: Store, latest: DeltaState, span: ChangeSpan, first: int, last: int
) -> DeltaState:
    """Return the state whose columns all rows are read under.

    The latest one; that of the last version where columns are mapped, as delta-spark does it.
    """
    if span.under_latest or last == latest.segment.version:
        return latest
    start, end = (load_state_at(store, version=version) for version in (first, last))
    is_mapped = any(one.mapping_mode is not MappingMode.NONE for one in (start, end, latest))
    return end if is_mapped else latest


def _check_versions(
    store: Store, state: DeltaState, times: Mapping[int, datetime], first: int, last: int
) -> None:
    """Raise where a version has no feed, or columns that cannot be read under those of `state`."""
    require_read(state.protocol, state.metadata, table=store.url)
    start = load_state_at(store, version=first).metadata
    for version, metadata in _all_metadata(store, start, times, first, last):
        if not _IS_ENABLED(metadata):
            raise errors.ChangeFeedError(
                f"{store.url} has no change data feed in version {version}:"
                " delta.enableChangeDataFeed was not set",
                table=store.url,
                version=version,
                hint="read from a later version; `set_properties` turns the feed on",
            )
        _require_compatible(store, version, metadata, state)


def _all_metadata(
    store: Store, start: Metadata, times: Mapping[int, datetime], first: int, last: int
) -> Iterator[tuple[int, Metadata]]:
    """Yield the metadata of the first version, and every change of it until the last."""
    yield first, start
    for version in range(first + 1, last + 1):
        if version not in times:
            raise _gone(store, version, "its commit is missing from the log")
        data = store.get(commit_key(version))
        if b'"metaData"' in data:
            metadata = parse_commit(version, data, table=store.url).metadata
            if metadata is not None:
                yield version, metadata


def _require_compatible(store: Store, version: int, metadata: Metadata, read: DeltaState) -> None:
    mode = mapping_mode(metadata.configuration)
    before = parse_schema(metadata.schema_string)
    difference = _difference(before, read.schema, mode, read.mapping_mode)
    if difference is None and metadata.partition_columns != read.metadata.partition_columns:
        difference = "its partition columns changed"
    if difference is None:
        return
    raise errors.SchemaMismatchError(
        f"the changes of version {version} of {store.url} cannot be read with the columns of"
        f" version {read.segment.version}: {difference}",
        table=store.url,
        version=version,
        difference=(difference,),
        hint="read the versions before and after the change of columns separately",
    )


def _difference(
    before: StructType, after: StructType, mode: MappingMode, read_mode: MappingMode
) -> str | None:
    """Say what keeps rows with columns `before` from being read `after`; None: nothing."""
    known = {physical_name(column, mode=read_mode): column for column in after.fields}
    for column in before.fields:
        found = known.get(physical_name(column, mode=mode))
        if found is None:
            return f"column {column.name!r} was dropped"
        if found.name != column.name:
            return f"column {column.name!r} was renamed to {found.name!r}"
        if column.nullable and not found.nullable:
            return f"column {column.name!r} was made NOT NULL"
        inner = _type_difference(column.type, found.type, mode, read_mode)
        if inner is not None:
            return f"column {column.name!r}: {inner}"
    return None


def _type_difference(
    before: DeltaType, after: DeltaType, mode: MappingMode, read_mode: MappingMode
) -> str | None:
    match before, after:
        case StructType(), StructType():
            return _difference(before, after, mode, read_mode)
        case ArrayType(one), ArrayType(other):
            return _type_difference(one, other, mode, read_mode)
        case MapType(key, value), MapType(other_key, other_value):
            return _type_difference(key, other_key, mode, read_mode) or _type_difference(
                value, other_value, mode, read_mode
            )
    return None if before == after else "its type changed"


def _gone(store: Store, version: int, why: str) -> errors.ChangeFeedError:
    return errors.ChangeFeedError(
        f"the changes of version {version} of {store.url} are no longer complete: {why}",
        table=store.url,
        version=version,
        hint="read from a later version; keep files and the log for as long as readers need them",
    )
