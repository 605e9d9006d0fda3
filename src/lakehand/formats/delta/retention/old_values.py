"""Which versions of a log hold values that the newest version of the table does not.

Commits and checkpoints hold values in the statistics of files, in partition values, and in the
predicates of commits. Which of them were deleted is not known, so it is decided by kind: statistics
of a file count once a later commit has removed rows or columns of that file, a partition value
counts if no live file has it. What a compaction says of files that it replaced does not count: all
of their rows are still in the table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.log.discovery import LogSegment, find_segment
from lakehand.formats.delta.log.file_members import decoded_path, line_types
from lakehand.formats.delta.log.loading import load_soundly
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.schema import leaves, mapping_mode, parse_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.delta.log.listing import CheckpointFiles, LogListing
    from lakehand.formats.delta.log.source import LogSource
    from lakehand.formats.delta.protocol.actions import Metadata
    from lakehand.storage import Store

__all__ = ["LogValues", "find_old_values", "last_tombstone_ms", "live_partition_values"]

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
    found.look_at_state(store, listing)
    clean_from = found.clean_from
    for checkpoint in sorted(listing.checkpoints, key=lambda c: c.version):
        if checkpoint.version >= clean_from and _holds_old_values(store, checkpoint, live):
            clean_from = checkpoint.version + 1
    return LogValues(last_removal=found.last_removal, clean_from=clean_from)


def last_tombstone_ms(store: Store, version: int, live: pa.Table) -> int | None:
    """Return the newest time of a tombstone with a partition value that no live file has.

    A checkpoint of `version` would hold it; None if it would hold no such value.
    """
    with open_log_source(store, find_segment(store, version=version)) as source:
        source.connection.register("live_values", live)
        removes = live_relation(source, "remove", ("deletionTimestamp", "partitionValues"))
        is_old = _NOT_LIVE.format(pairs="map_entries(partitionValues)")
        ((newest,),) = source.run(f"SELECT max(deletionTimestamp) FROM {removes} WHERE {is_old}")
    return None if newest is None else int(newest)


class _Search:
    """Finds the newest commits that removed something, or hold values that are gone."""

    def __init__(self, metadata: Metadata) -> None:
        self.last_removal: int | None = None
        self.clean_from = 0
        self._known = _known_paths(metadata.schema_string, metadata.configuration)

    def look_through(self, source: LogSource) -> None:
        _read_actions(source)
        self._note_removal(_newest(source, _TAKES_ROWS))
        self._note_values(_newest(source, f"{_TAKES_ROWS} AND has_bounds"))
        self._note_values(_newest(source, _NOT_LIVE.format(pairs="pairs")))
        self._note_unknown_columns(source)
        changing = {version for (version,) in source.run(_CHANGING)}
        removing = {version for (version,) in source.run(_REMOVING)}
        schemas: list[tuple[int, frozenset[Path]]] = []
        for action in source.other_actions():
            if action.kind == "commitInfo" and action.version in changing:
                if _names_values(action.value, is_removal=action.version in removing):
                    self._note_values(action.version)
            elif action.kind == "metaData":
                value = action.value
                paths = _known_paths(value.get("schemaString"), value.get("configuration") or {})
                schemas.append((action.version, paths))
        for (_, before), (version, after) in pairwise(schemas):
            if before - after:
                self._note_removal(version)

    def look_at_state(self, store: Store, listing: LogListing) -> None:
        """Note removals that do not say of themselves that they removed rows or columns.

        Such a file still tells of them in the state of the first version that seemed to be clean.
        """
        later = _commits(listing, after=self.clean_from)
        if later is None or self.clean_from < (listing.earliest_version or 0):
            return
        telling = load_soundly(store, self.clean_from, lambda s: self._telling_files(store, s))
        if not telling.num_rows:
            return
        with open_log_source(store, later) as source:
            source.connection.register("telling", telling)
            lines = source.lines.relation({"remove": line_types("remove", ())})
            path = decoded_path("remove.path")
            ((version,),) = source.run(
                f"SELECT max(version) FROM {lines} WHERE {path} IN (SELECT path_key FROM telling)"
            )
        self._note_removal(version)

    def _telling_files(self, store: Store, segment: LogSegment) -> pa.Table:
        """Return the live files whose statistics may be of deleted rows or dropped columns."""
        columns = {"smallest": "minValues", "largest": "maxValues"}
        derived = {name: _structure("{stats}", part) for name, part in columns.items()}
        derived |= {"has_bounds": _HAS_BOUNDS.format(stats="{stats}")}
        with open_log_source(store, segment) as source:
            adds = live_relation(source, "add", ("deletionVector",), derived=derived)
            source.run(f"CREATE TEMP TABLE adds AS SELECT * FROM {adds} WHERE has_bounds")
            structures = source.run("SELECT DISTINCT smallest, largest FROM adds")
            unknown = [pair for pair in structures if self._names_unknown(pair)]
            source.connection.register("unknown", _as_table(unknown, ("smallest", "largest")))
            return source.stream(
                "SELECT path_key FROM adds WHERE deletionVector.storageType IS NOT NULL OR"
                " EXISTS (SELECT 1 FROM unknown WHERE"
                " unknown.smallest IS NOT DISTINCT FROM adds.smallest AND"
                " unknown.largest IS NOT DISTINCT FROM adds.largest)"
            ).read_all()

    def _names_unknown(self, structures: Iterable[str | None]) -> bool:
        """Say whether statistics name a column that the table does not have."""
        found = (path for text in structures if text for path in _paths(json.loads(text)))
        return any(not self._is_known(path) for path in found)

    def _note_unknown_columns(self, source: LogSource) -> None:
        """Note statistics of columns that the table does not have any more."""
        for version, kind, *structures in source.run(
            "SELECT DISTINCT version, kind, smallest, largest FROM actions WHERE has_bounds"
        ):
            if self._names_unknown(structures):
                self._note_values(version)
                if kind == "remove":
                    self._note_removal(version)

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


def _as_table(rows: Sequence[Sequence[str | None]], names: Sequence[str]) -> pa.Table:
    columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(len(names))]
    return pa.table(columns, names=list(names))


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
        f"{_structure(stats, 'minValues')} AS smallest, "
        f"{_structure(stats, 'maxValues')} AS largest "
        f"FROM {lines} WHERE add IS NOT NULL OR remove IS NOT NULL OR cdc IS NOT NULL"
    )


def _structure(stats: str, member: str) -> str:
    """Return SQL for the columns that a part of statistics names, as a string of JSON."""
    part = f"json_extract({stats}, '$.{member}')"
    return f"CAST(CASE WHEN json_valid({stats}) THEN json_structure({part}) END AS VARCHAR)"


def _newest(source: LogSource, condition: str) -> int | None:
    ((version,),) = source.run(f"SELECT max(version) FROM actions WHERE {condition}")
    return None if version is None else int(version)


def live_partition_values(store: Store, metadata: Metadata) -> pa.Table:
    """Return the partition values of live files, each once."""
    if not metadata.partition_columns:
        return _PAIRS.empty_table()
    return load_soundly(store, None, lambda segment: _read_live_values(store, segment))


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
    return frozenset(tuple(name.lower() for name in leaf.physical_path) for leaf in found)


def _paths(structure: Any, start: Path = ()) -> Iterator[Path]:
    """Yield the columns of statistics, given as DuckDB describes their JSON."""
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
