"""The commits of a table, what each did, and which commit added a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.duckdb_pool import connect
from lakehand.errors import ObjectNotFoundError, VersionNotFoundError
from lakehand.formats.delta.log.commit_times import from_milliseconds, storage_times
from lakehand.formats.delta.log.listing import ReplayedFile, list_log, read_commit
from lakehand.formats.delta.log.log_source import gather_lines, open_log_files
from lakehand.formats.delta.log.replay import decoded_path
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol.actions import Commit, parse_commit_info, row_count
from lakehand.formats.delta.protocol.names import commit_key, decode_path
from lakehand.model.quantities import format_count
from lakehand.model.reports import Difference, HistoryEntry
from lakehand.model.work import DataFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "file added": (
        "numAddedFiles", "num_added_files", "numFiles", "numFilesAdded", "numTargetFilesAdded",
        "numRestoredFiles",
    ),
    "file removed": (
        "numRemovedFiles", "num_removed_files", "numFilesRemoved", "numTargetFilesRemoved",
    ),
    "row written": ("numOutputRows", "num_added_rows", "num_output_rows"),
    "row deleted": ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted"),
    "row updated": ("numUpdatedRows", "num_updated_rows", "numTargetRowsUpdated"),
    "file deleted": ("numDeletedFiles",),
    "file refreshed": ("numRefreshedFiles",),
}  # fmt: skip


def describe_metrics(metrics: Mapping[str, Any]) -> str:
    """Name what the metrics count, leaving out what is zero.

    >>> describe_metrics({"numRemovedFiles": "12", "numAddedFiles": "1", "numBatches": "3"})
    '1 file added, 12 files removed'
    """
    words = []
    for what, spellings in _SPELLINGS.items():
        count = next((_count(metrics[name]) for name in spellings if name in metrics), 0)
        if count:
            noun, participle = what.split()
            words.append(f"{format_count(count, noun)} {participle}")
    return ", ".join(words)


def _count(value: Any) -> int:
    """Return a metric; 0 for what is not one, as a text of thousands of digits."""
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return 0
    return number if 0 <= number < 2**63 else 0


_COMMITS_AT_A_TIME = 64
_COMMITS_LOOKED_AT = 256


def history(store: Store, *, limit: int | None = None) -> list[HistoryEntry]:
    """Return the commits that are still in the log, newest first."""
    times = storage_times(list_log(store))
    versions = sorted(times, reverse=True)[:limit]
    entries: list[HistoryEntry] = []
    for start in range(0, len(versions), _COMMITS_AT_A_TIME):
        batch = versions[start : start + _COMMITS_AT_A_TIME]
        texts = store.get_many([commit_key(version) for version in batch])
        for version, text in zip(batch, texts, strict=True):
            info = parse_commit_info(version, text, table=store.url)
            entries.append(_entry(version, info, times[version]))
    return entries


def rows_changed_since(store: Store, moment: datetime) -> bool:
    """Say whether one of the newest commits, since `moment`, took rows away.

    Too many commits to read are those of a stream, and streams append: the newest ones tell.
    """
    times = storage_times(list_log(store))
    recent = sorted((version for version, at in times.items() if at >= moment), reverse=True)
    texts = store.get_many([commit_key(version) for version in recent[:_COMMITS_LOOKED_AT]])
    return any(_takes_rows_away(line) for text in texts for line in text.split(b"\n"))


def _takes_rows_away(line: bytes) -> bool:
    if not line.lstrip().startswith(b'{"remove"') and b'"remove"' not in line[:200]:
        return False
    try:
        action = json.loads(line).get("remove")
    except (ValueError, AttributeError):
        return True
    return isinstance(action, dict) and action.get("dataChange", True) is not False


def _entry(version: int, info: Mapping[str, Any], stored_at: datetime) -> HistoryEntry:
    own = info.get("lakehand")
    proof = own.get("proof") if isinstance(own, dict) else None
    claimed = info.get("inCommitTimestamp")
    metrics = _mapping(info.get("operationMetrics"))
    return HistoryEntry(
        version=version,
        at=stored_at if claimed is None else from_milliseconds(int(claimed)),
        operation=_text(info.get("operation")),
        parameters=_mapping(info.get("operationParameters")),
        metrics={name: str(value) for name, value in metrics.items()},
        summary=describe_metrics(metrics),
        engine=_text(info.get("engineInfo")),
        token=_text(info.get("txnId")),
        proof=proof if isinstance(proof, dict) else None,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return what engines should write as an object; another shape is kept under one name."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def diff(store: Store, from_version: int, to_version: int) -> Difference:
    """Return which files `to_version` has and `from_version` has not, and the reverse."""
    old = load_snapshot(store, version=from_version)
    new = load_snapshot(store, version=to_version)
    old_keys, new_keys = _keys(old.files), _keys(new.files)
    return Difference(
        from_version=from_version,
        to_version=to_version,
        added=new.files.filter(pc.invert(pc.is_in(new_keys, old_keys))),
        removed=old.files.filter(pc.invert(pc.is_in(old_keys, new_keys))),
        schema_changed=_columns(old) != _columns(new),
        properties_changed=dict(old.properties) != dict(new.properties),
    )


def _columns(snapshot: Snapshot) -> tuple[Any, ...]:
    return snapshot.native.schema, snapshot.partition_columns


def _keys(files: pa.Table) -> pa.ChunkedArray:
    """Return one text for each file that tells it from all others: path and deletion vector."""
    vector = pc.struct_field(files["native"], "deletion_vector")
    parts = [pc.struct_field(vector, name) for name in ("storage_type", "path_or_inline", "offset")]
    texts = [files["path"], *(part.cast(pa.string()) for part in parts)]
    return pc.binary_join_element_wise(*texts, "\0", null_handling="replace", null_replacement="")


def proved_commit(store: Store, version: int) -> Commit:
    """Return the commit of a version; VersionNotFoundError if it is not in the log."""
    try:
        return read_commit(store, version)
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"the commit of version {version} of {store.url} is not, or no longer, in the log",
            table=store.url,
            version=version,
            hint="`lakehand history` lists the available commits",
        ) from error


def proof_of(commit: Commit) -> Mapping[str, Any] | None:
    """Return the proof that lakehand stored in a commit; None if there is none."""
    own = (commit.commit_info or {}).get("lakehand")
    proof = own.get("proof") if isinstance(own, dict) else None
    return proof if isinstance(proof, dict) else None


def files_of(actions: tuple[dict[str, Any], ...]) -> tuple[DataFile, ...]:
    """Return adds or removes as files that can be read: lakehand's removes have all that is needed.

    That is: where the file is, its partition, which rows were deleted, and the ids of the others.
    """
    return tuple(
        DataFile(
            path=decode_path(action["path"]),
            bytes=int(action.get("size") or 0),
            rows=row_count(action.get("stats")),
            deleted_rows=int((action.get("deletionVector") or {}).get("cardinality", 0)),
            native={"add": {"partitionValues": {}, **action}},
        )
        for action in actions
    )


# An entry that a commit replaces by another of the same file, or refreshes without replacing
# anything, did not bring the file.
_FIRST_ADDS = """
WITH added AS MATERIALIZED (
    SELECT version, {path} AS path, coalesce((add->>'$.dataChange')::BOOLEAN, true) AS is_change
    FROM {lines} WHERE add IS NOT NULL
), removed AS MATERIALIZED (
    SELECT DISTINCT version, {removed_path} AS path FROM {lines} WHERE remove IS NOT NULL
), brought AS (
    SELECT path, min(version) AS version
    FROM added ANTI JOIN removed USING (version, path)
    WHERE is_change OR version IN (SELECT version FROM removed)
    GROUP BY path
)
SELECT brought.version FROM wanted LEFT JOIN brought USING (path) ORDER BY number
"""


def file_versions(store: Store, paths: pa.ChunkedArray, *, until: int) -> pa.Array:
    """Return the version that first added each file; null where that commit is gone.

    All commits that exist are read, whatever checkpoint replaces them: the answer must not depend
    on when a checkpoint was written.
    """
    listing = list_log(store)
    commits = [
        ReplayedFile(version=version, key=commit_key(version), bytes=listing.commit_bytes[version])
        for version in sorted(listing.commits)
        if version <= until
    ]
    if not commits:
        return pa.nulls(len(paths), pa.int64())
    numbers = pa.array(range(len(paths)), pa.int64())
    with open_log_files(store) as files, connect() as connection:
        lines = gather_lines(store, files, commits).relation({"add": "JSON", "remove": "JSON"})
        connection.register("wanted", pa.table({"number": numbers, "path": paths}))
        query = _FIRST_ADDS.format(
            lines=lines,
            path=decoded_path("json_extract_string(add, '$.path')"),
            removed_path=decoded_path("json_extract_string(remove, '$.path')"),
        )
        return connection.sql(query).to_arrow_table().column(0).combine_chunks()
