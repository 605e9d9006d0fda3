"""Where a log, its checkpoints and its checksums still hold values of deleted rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.checkpoints.content import tombstone_retention
from lakehand.formats.delta.commits.commit_info import is_purge
from lakehand.formats.delta.log.commit_times import committed_at, from_milliseconds
from lakehand.formats.delta.log.listing import LogSegment, find_segment, list_log
from lakehand.formats.delta.log.log_source import LogSource, open_log_source
from lakehand.formats.delta.log.log_state import load_soundly
from lakehand.formats.delta.log.replay import decoded_path, line_types, live_relation
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.schema import leaves, mapping_mode, parse_schema
from lakehand.formats.delta.retention.log_cleanup import cleanup_refusal, held_back, log_retention
from lakehand.model.maintenance import ExtraRetention, OldValues
from lakehand.model.work import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.formats.delta.log.listing import CheckpointFiles, LogListing
    from lakehand.formats.delta.protocol.actions import Metadata
    from lakehand.storage import Store

Path = tuple[str, ...]

_MEMBERS = ("partitionValues", "stats", "dataChange")
_CHANGE_FILE = 'STRUCT(path VARCHAR, "partitionValues" MAP(VARCHAR, VARCHAR))'
#: Statistics with smallest or largest values; those of purge's own commits have a row count only.
_HAS_BOUNDS = "coalesce(contains({stats}, 'Values\"'), false)"
#: Removes of a rewrite that changes no row do not count, unless they had deleted rows.
_TAKES_ROWS = (
    "((kind = 'remove' AND (data_change IS DISTINCT FROM false OR has_vector))"
    " OR (kind = 'add' AND has_vector))"
)
_NOT_LIVE = (
    "EXISTS (SELECT 1 FROM (SELECT unnest({pairs}) AS pair) WHERE pair.value IS NOT NULL AND"
    " NOT EXISTS (SELECT 1 FROM live_values WHERE name = pair.key AND value = pair.value))"
)
_CHANGING = (
    "SELECT DISTINCT version FROM actions WHERE kind <> 'cdc' AND data_change IS DISTINCT FROM"
    " false"
)
_REMOVING = f"SELECT DISTINCT version FROM actions WHERE {_TAKES_ROWS}"
_PAIRS = pa.schema([("name", pa.string()), ("value", pa.string())])
_TEXT = pa.string()
#: A value after its name, in the syntax that DuckDB and Python share.
_VALUE = r':\s*("(?:[^"\\]|\\.)*"|[-+.0-9A-Za-z]+)'
_LITERAL = re.compile(r"['\d]")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogValues:
    """What the log holds beyond the newest version."""

    #: Newest version that removed rows or columns; None: none that the log still has.
    last_removal: int | None
    #: Neither commits nor checkpoints from this version on hold values that were removed.
    clean_from: int


def find_old_values(
    store: Store, listing: LogListing, metadata: Metadata, live: pa.Table
) -> LogValues:
    """Look through all commits, and through checkpoints that the commits do not rule out.

    `live` is what `live_partition_values` returns.
    """
    found = _Search(metadata)
    commits = _commits(listing)
    if commits is not None:
        with open_log_source(store, commits) as source:
            source.connection.register("live_values", live)
            found.look_through(source)
    found.look_at_states(store, listing)
    clean_from = found.clean_from
    for checkpoint in sorted(listing.checkpoints, key=lambda c: c.version):
        if checkpoint.version >= clean_from and _holds_old_values(store, checkpoint, live):
            clean_from = checkpoint.version + 1
    return LogValues(last_removal=found.last_removal, clean_from=clean_from)


def last_tombstone_ms(store: Store, version: int, live: pa.Table | None = None) -> int | None:
    """Return the newest time of a tombstone, or of one with a partition value that is not `live`.

    A checkpoint of `version` would hold it; None if it would hold no such tombstone.
    """
    with open_log_source(store, find_segment(store, version=version)) as source:
        removes = live_relation(source, "remove", ("deletionTimestamp", "partitionValues"))
        query = f"SELECT max(deletionTimestamp) FROM {removes}"
        if live is not None:
            source.connection.register("live_values", live)
            query += " WHERE " + _NOT_LIVE.format(pairs="map_entries(partitionValues)")
        ((newest,),) = source.run(query)
    return None if newest is None else int(newest)


class _Search:
    """Finds the newest commits that removed something, or hold values that are gone."""

    def __init__(self, metadata: Metadata) -> None:
        self.last_removal: int | None = None
        self.clean_from = 0
        #: Version that dropped columns last.
        self._last_drop: int | None = None
        self._known = _known_paths(metadata.schema_string, metadata.configuration)

    def look_through(self, source: LogSource) -> None:
        _read_actions(source)
        self._note_removal(_newest(source, _TAKES_ROWS))
        self._note_values(_newest(source, f"{_TAKES_ROWS} AND has_bounds"))
        self._note_values(_newest(source, _NOT_LIVE.format(pairs="pairs")))
        self._note_unknown_columns(source)
        self._look_at_predicates(source)
        self._look_at_schemas(source)

    def _look_at_predicates(self, source: LogSource) -> None:
        changing = {version for (version,) in source.run(_CHANGING)}
        removing = {version for (version,) in source.run(_REMOVING)}
        for action in source.other_actions():
            if action.kind != "commitInfo":
                continue
            is_removal = action.version in removing
            if action.version in changing and _names_values(action.value, is_removal=is_removal):
                self._note_values(action.version)
            if is_purge(action.value):
                self._note_removal(action.version)

    def _look_at_schemas(self, source: LogSource) -> None:
        values = [a for a in source.other_actions() if a.kind == "metaData"]
        schemas = [
            _known_paths(a.value.get("schemaString"), a.value.get("configuration") or {})
            for a in values
        ]
        for (before, after), action in zip(pairwise(schemas), values[1:], strict=True):
            if before - after:
                self._last_drop = action.version
                self._note_removal(action.version)

    def look_at_states(self, store: Store, listing: LogListing) -> None:
        """Note removals that do not say of themselves that they removed rows or columns.

        Their files tell of them in the state of the first version that seemed to be clean, or were
        there when a column was dropped.
        """
        earliest = listing.earliest_version or 0
        start = max(self.clean_from, earliest)
        self._note_removal_of(store, listing, start, self._telling_files)
        if self._last_drop is not None and self._last_drop >= earliest:
            self._note_removal_of(store, listing, self._last_drop, _live_files)

    def _note_removal_of(
        self,
        store: Store,
        listing: LogListing,
        version: int,
        files: Callable[[Store, LogSegment], pa.Table],
    ) -> None:
        """Note when the last of those `files` was removed that a version had."""
        later = _commits(listing, after=version)
        if later is None:
            return
        paths = load_soundly(store, version, lambda segment: files(store, segment))
        if not paths.num_rows:
            return
        with open_log_source(store, later) as source:
            source.connection.register("paths", paths)
            lines = source.lines.relation({"remove": line_types("remove", ())})
            path = decoded_path("remove.path")
            ((removed_by,),) = source.run(
                f"SELECT max(version) FROM {lines} WHERE {path} IN (SELECT path_key FROM paths)"
            )
        self._note_removal(removed_by)

    def _telling_files(self, store: Store, segment: LogSegment) -> pa.Table:
        """Return the live files whose statistics may be of deleted rows or dropped columns."""
        derived = {"outline": _outline("{stats}"), "has_bounds": _HAS_BOUNDS}
        with open_log_source(store, segment) as source:
            adds = live_relation(source, "add", ("deletionVector",), derived=derived)
            seen = source.stream(f"SELECT DISTINCT outline FROM {adds} WHERE has_bounds").read_all()
            unknown = [text for text in seen["outline"].to_pylist() if self._names_unknown(text)]
            source.connection.register("unknown", pa.table({"outline": pa.array(unknown, _TEXT)}))
            return source.stream(
                f"SELECT path_key FROM {adds} WHERE has_bounds AND (deletionVector.storageType IS"
                " NOT NULL OR outline IN (SELECT outline FROM unknown))"
            ).read_all()

    def _note_unknown_columns(self, source: LogSource) -> None:
        """Note statistics of columns that the table does not have any more."""
        for version, kind, outline in source.run(
            "SELECT DISTINCT version, kind, outline FROM actions WHERE has_bounds"
        ):
            if self._names_unknown(outline):
                self._note_values(version)
                if kind == "remove":
                    self._note_removal(version)

    def _names_unknown(self, outline: str) -> bool:
        """Say whether statistics name a column that the table does not have, or cannot be read."""
        try:
            stats = json.loads(outline)
            found = [*_paths(stats.get("minValues")), *_paths(stats.get("maxValues"))]
        except (ValueError, AttributeError):
            return True
        return not all(self._is_known(path) for path in found)

    def _is_known(self, path: Path) -> bool:
        """Say whether a column of statistics is one of the table's, or a part of one."""
        return any(path[:length] in self._known for length in range(1, len(path) + 1))

    def _note_removal(self, version: int | None) -> None:
        """Note a removal: checkpoints before it hold what it removed, its own does not."""
        if version is not None:
            self.last_removal = max(version, self.last_removal or 0)
            self.clean_from = max(version, self.clean_from)

    def _note_values(self, version: int | None) -> None:
        if version is not None:
            self.clean_from = max(version + 1, self.clean_from)


def _commits(listing: LogListing, *, after: int = -1) -> LogSegment | None:
    """Return all commits after a version, as what replay reads; None if there are none."""
    versions = tuple(version for version in sorted(listing.commits) if version > after)
    if not versions:
        return None
    return LogSegment(
        version=versions[-1],
        checkpoint=None,
        commits=versions,
        commit_bytes=listing.commit_bytes,
        commit_modified_at=listing.commits,
    )


def _read_actions(source: LogSource) -> None:
    """Read what matters of all file actions; equal ones of a version once."""
    types = {"add": line_types("add", _MEMBERS), "remove": line_types("remove", _MEMBERS)}
    lines = source.lines.relation(types | {"cdc": _CHANGE_FILE})
    stats = "coalesce(add.stats, remove.stats)"
    source.run(
        "CREATE TEMP TABLE actions AS SELECT DISTINCT version, "
        "CASE WHEN add IS NOT NULL THEN 'add' WHEN remove IS NOT NULL THEN 'remove' ELSE 'cdc' END"
        " AS kind, map_entries(coalesce(add.partitionValues, remove.partitionValues, "
        "cdc.partitionValues)) AS pairs, "
        "CASE WHEN add IS NULL THEN remove.dataChange ELSE add.dataChange END AS data_change, "
        "coalesce(add.deletionVector, remove.deletionVector).storageType IS NOT NULL AS has_vector,"
        f" {_HAS_BOUNDS.format(stats=stats)} AS has_bounds, "
        f"{_outline(stats)} AS outline "
        f"FROM {lines} WHERE add IS NOT NULL OR remove IS NOT NULL OR cdc IS NOT NULL"
    )


def _outline(stats: str) -> str:
    """Return SQL for statistics without their values: few different ones are left to parse."""
    return f"regexp_replace({stats}, {quote_string(_VALUE)}, ':0', 'g')"


def _newest(source: LogSource, condition: str) -> int | None:
    ((version,),) = source.run(f"SELECT max(version) FROM actions WHERE {condition}")
    return None if version is None else int(version)


def live_partition_values(store: Store, metadata: Metadata) -> pa.Table:
    """Return the partition values of live files, each once."""
    if not metadata.partition_columns:
        return _PAIRS.empty_table()
    return load_soundly(store, None, lambda segment: _read_live_values(store, segment))


def _live_files(store: Store, segment: LogSegment) -> pa.Table:
    with open_log_source(store, segment) as source:
        adds = live_relation(source, "add", ("path",))
        return source.stream(f"SELECT path_key FROM {adds}").read_all()


def _read_live_values(store: Store, segment: LogSegment) -> pa.Table:
    with open_log_source(store, segment) as source:
        adds = live_relation(source, "add", ("partitionValues",))
        pairs = f"SELECT unnest(map_entries(partitionValues)) AS pair FROM {adds}"
        query = f"SELECT DISTINCT pair.key AS name, pair.value AS value FROM ({pairs})"
        return source.stream(query).read_all().cast(_PAIRS)


def _holds_old_values(store: Store, checkpoint: CheckpointFiles, live: pa.Table) -> bool:
    """Say whether a checkpoint has tombstones that tell what is gone, or cannot be read."""
    segment = LogSegment(version=checkpoint.version, checkpoint=checkpoint, commits=())
    try:
        with open_log_source(store, segment) as source:
            source.connection.register("live_values", live)
            removes = live_relation(source, "remove", ("partitionValues", "stats"))
            is_old = _NOT_LIVE.format(pairs="map_entries(partitionValues)")
            has_bounds = _HAS_BOUNDS.format(stats="stats")
            found = source.stream(f"SELECT 1 FROM {removes} WHERE {has_bounds} OR {is_old} LIMIT 1")
            return bool(found.read_all().num_rows)
    except CorruptFileError:
        return True


def _known_paths(schema: str | None, properties: Mapping[str, str]) -> frozenset[Path]:
    found = leaves(parse_schema(schema), mode=mapping_mode(properties))
    return frozenset(tuple(map(_spelled, leaf.physical_path)) for leaf in found)


def _spelled(name: str) -> str:
    """Return the name of a column as outlines have it."""
    return re.sub(_VALUE, ":0", name).lower()


def _paths(structure: Any, start: Path = ()) -> Iterator[Path]:
    """Yield the columns of smallest or largest values."""
    if not isinstance(structure, dict):
        if start:
            yield start
        return
    for name, member in structure.items():
        yield from _paths(member, (*start, name.lower()))


def _names_values(info: Mapping[str, Any], *, is_removal: bool) -> bool:
    """Say whether the predicates of a commit may name values; a join of two tables names none."""
    parameters = info.get("operationParameters")
    if not isinstance(parameters, dict):
        return False
    texts = [str(text) for name, text in parameters.items() if "predicate" in name.lower()]
    stripped = [text.strip('[]"() ') for text in texts]
    if is_removal:
        return any(text and text.lower() != "true" for text in stripped)
    return any(_LITERAL.search(text) for text in stripped)


_DAY = timedelta(days=1)


def boundary_change(version: int) -> Change:
    """Return a commit without files, so that the one before it can be cleaned away in time."""
    return Change(kind="metadata", base_version=version, operation="PURGE")


class LogErasure:
    """The current log of a table, and the rewrites that remove old values from it."""

    def __init__(self, store: Store, *, now: datetime) -> None:
        self._store = store
        self._now = now
        state = load_state_at(store)
        self._metadata = state.metadata
        self._listing = list_log(store)
        self.newest = state.segment.version
        self._live = live_partition_values(store, state.metadata)
        self._values = find_old_values(store, self._listing, state.metadata, self._live)

    @property
    def is_in_log(self) -> bool:
        """Whether anything in the log holds values that are gone."""
        first = self._values.clean_from
        versions = (*self._listing.commits, *(c.version for c in self._listing.checkpoints))
        return any(version < first for version in versions)

    @property
    def needs_commit(self) -> bool:
        """Whether the newest commit itself, or its checkpoint, holds values that are gone."""
        return self.is_in_log and self.newest < self._values.clean_from

    @property
    def checkpoint_to_write(self) -> int | None:
        """The version that wants a checkpoint now; None: none, or not before tombstones expire."""
        is_waiting = self.is_in_log and not self.needs_commit and self._checkpointed() is None
        expiry = self._tombstones_expire_at if is_waiting else None
        is_due = is_waiting and (expiry is None or expiry <= self._now)
        return self._values.clean_from if is_due else None

    def report(self, wishes: ExtraRetention) -> OldValues:
        """Say what of the log, and of older versions, holds values that are gone."""
        removal = self._values.last_removal
        at = self._forgotten_at() if removal is None else self._committed_at(removal)
        if not self.is_in_log:
            return OldValues(version=removal, at=at, in_history=False)
        boundary = self._checkpointed() or self._values.clean_from
        reason = cleanup_refusal(self._metadata.configuration)
        _, held_by = held_back(self._listing, boundary, wishes)
        reason = reason or held_by
        gone_at = None if reason else self._gone_at(boundary)
        return OldValues(
            version=removal, at=at, in_history=True, history_gone_at=gone_at, reason=reason
        )

    def _forgotten_at(self) -> datetime | None:
        """Return when files were removed last by commits that are cleaned away already.

        Whether rows were deleted with them is not known any more.
        """
        earliest = self._listing.earliest_version
        newest_ms = last_tombstone_ms(self._store, earliest) if earliest else None
        return None if newest_ms is None else from_milliseconds(newest_ms)

    def _gone_at(self, boundary: int) -> datetime:
        """Return from when on a cleanup deletes all below `boundary`: it goes by whole days."""
        at = self._now if boundary > self.newest else self._committed_at(boundary)
        midnight = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
        first = midnight if midnight == at else midnight + _DAY
        gone_at = first + log_retention(self._metadata.configuration)
        expiry = None if self._checkpointed() is not None else self._tombstones_expire_at
        return gone_at if expiry is None else max(gone_at, expiry)

    def _checkpointed(self) -> int | None:
        """Return the first version without old values that has a checkpoint."""
        versions = (c.version for c in self._listing.checkpoints)
        return min((v for v in versions if v >= self._values.clean_from), default=None)

    @cached_property
    def _tombstones_expire_at(self) -> datetime | None:
        """Return until when a checkpoint would have to hold partition values that are gone."""
        version = min(self._values.clean_from, self.newest)
        newest_ms = last_tombstone_ms(self._store, version, self._live)
        if newest_ms is None:
            return None
        expiry = from_milliseconds(newest_ms)
        return expiry + tombstone_retention(self._metadata.configuration)

    def _committed_at(self, version: int) -> datetime:
        return committed_at(self._store, self._listing, version)
