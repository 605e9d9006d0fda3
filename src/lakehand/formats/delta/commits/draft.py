"""The lines of a new version: a change written as actions, stamped for one attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.commits.commit_info import commit_info
from lakehand.formats.delta.commits.head import (
    assign_row_ids,
    assigns_row_ids,
    high_water_mark_action,
)
from lakehand.formats.delta.protocol.actions import Metadata, Protocol, row_count
from lakehand.formats.delta.protocol.clustering import shared_cube
from lakehand.formats.delta.protocol.features import uses_in_commit_timestamps
from lakehand.formats.delta.protocol.names import OTHER_PATHS, encode_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakehand.formats.delta.commits.head import Head
    from lakehand.model.work import Change, DataFile, Refreshed, StagedFile

_COPIED_TO_REMOVE = (
    "partitionValues",
    "size",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)
_ROW_TRACKING_FIELDS = ("baseRowId", "defaultRowCommitVersion")
_KEPT_BY_RE_ADD = ("modificationTime", *_ROW_TRACKING_FIELDS)
_TAKEN_FROM_STAGED = ("partitionValues", "stats", "tags", "clusteringProvider", "deletionVector")


def draft_commit(change: Change, head: Head, *, token: str, now_ms: int) -> bytes:
    """Return the bytes of the version after `head`, with all that depends on time and place new."""
    timestamp_ms = head.next_timestamp(now_ms)
    starts_timestamps = _starts_timestamps(change, head)
    adds, mark = _adds(change, head, now_ms)
    adds += [_refreshed(refreshed) for refreshed in change.refreshed]
    removes = [remove for file in change.all_removes for remove in _removes(file, change, now_ms)]
    info = commit_info(
        change, head, adds=adds, removes=removes, token=token, timestamp_ms=timestamp_ms
    )
    if starts_timestamps:
        info = {"inCommitTimestamp": timestamp_ms, **info}
    actions: list[tuple[str, Mapping[str, Any]]] = [("commitInfo", info)]
    if change.transaction is not None:
        actions.append(("txn", _transaction(change, now_ms)))
    if mark != head.row_id_high_water_mark:
        actions.append(("domainMetadata", high_water_mark_action(mark)))
    for kind, action in (item for described in change.native for item in described.items()):
        is_first = kind == "metaData" and starts_timestamps
        actions.append((kind, _enabled_now(action, head, timestamp_ms) if is_first else action))
    actions += [("remove", remove) for remove in removes]
    actions += [("add", add) for add in adds]
    actions += [("cdc", _change_file(file)) for file in change.changes]
    return encode_actions(actions)


def _starts_timestamps(change: Change, head: Head) -> bool:
    """Say whether the table keeps the time in each commit from this commit on."""
    said = {kind: action for item in change.native for kind, action in item.items()}
    if head.uses_in_commit_timestamps or "metaData" not in said:
        return False
    metadata = Metadata.from_json(said["metaData"])
    protocol = Protocol.from_json(said["protocol"]) if "protocol" in said else head.protocol
    return uses_in_commit_timestamps(protocol, metadata)


def _enabled_now(metadata: Mapping[str, Any], head: Head, timestamp_ms: int) -> dict[str, Any]:
    """Say in the metadata from which version on commits have their own time: from this one on."""
    enablement = {
        "delta.inCommitTimestampEnablementVersion": str(head.version + 1),
        "delta.inCommitTimestampEnablementTimestamp": str(timestamp_ms),
    }
    return {**metadata, "configuration": {**metadata["configuration"], **enablement}}


def encode_actions(actions: Iterable[tuple[str, Mapping[str, Any]]]) -> bytes:
    """Write actions as a commit holds them: one a line, no blank lines."""
    lines = (
        json.dumps({kind: action}, separators=(",", ":"), ensure_ascii=False)
        for kind, action in actions
    )
    return ("\n".join(lines) + "\n").encode()


def changes_data(change: Change) -> bool:
    """Return whether change data feed readers must read this commit."""
    return change.kind not in {"rewrite", "statistics"}


def _adds(change: Change, head: Head, now_ms: int) -> tuple[list[dict[str, Any]], int]:
    live = {file.path: file.native["add"] for file in change.all_removes}
    cubes = _kept_cubes(change)
    adds = [
        cubes.get(file.path, {}) | _add(file, change, live.get(file.path), now_ms)
        for file in change.all_adds
    ]
    adds += [{**file.native["add"], "dataChange": True} for file in change.restored]
    mark = head.row_id_high_water_mark
    if not assigns_row_ids(head.protocol, head.metadata):
        return [_without_row_ids(add) for add in adds], mark
    return assign_row_ids(adds, mark=mark, version=head.version + 1)


def _kept_cubes(change: Change) -> dict[str, dict[str, Any]]:
    """Return which new files are part of a cube, because all rows in them were before."""
    return {
        file.path: shared_cube([removed.native["add"] for removed in group.removes])
        for group in change.replacements
        for file in group.adds
        # What was put into another order says so itself.
        if not file.native.get("tags")
    }


def _add(
    file: StagedFile, change: Change, live: Mapping[str, Any] | None, now_ms: int
) -> dict[str, Any]:
    """Return the action for a staged file; `live` is the entry of the same file, if it stays."""
    path = encode_path(file.path) if live is None else live["path"]
    add = {
        "path": path,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": now_ms,
        "dataChange": changes_data(change),
        **_present(file.native, _TAKEN_FROM_STAGED),
    }
    return add if live is None else {**add, **_present(live, _KEPT_BY_RE_ADD)}


def _change_file(file: StagedFile) -> dict[str, Any]:
    """Return the action for a file of changes, which changes nothing itself."""
    return {
        "path": encode_path(file.path),
        "partitionValues": dict(file.native["partitionValues"]),
        "size": file.bytes,
        "dataChange": False,
    }


def _refreshed(refreshed: Refreshed) -> dict[str, Any]:
    """Return the entry of a live file again, with the values that were recomputed.

    Nothing else may differ, row ids among it: the file is the same, and so are its rows.
    """
    return {**refreshed.file.native["add"], "dataChange": False, **refreshed.native}


def _removes(file: DataFile, change: Change, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the action that removes a file, once for each spelling that the log has of its path.

    An entry that is left would bring the rows of the file back.
    """
    remove = _remove(file, change, now_ms)
    yield remove
    for path in file.native.get(OTHER_PATHS, ()):
        yield {**remove, "path": path}


def _remove(file: DataFile, change: Change, now_ms: int) -> dict[str, Any]:
    live = file.native["add"]
    if change.erases:
        live = _without_values(live)
    return {
        "path": live["path"],
        "deletionTimestamp": now_ms,
        "dataChange": changes_data(change),
        "extendedFileMetadata": True,
        **_present(live, _COPIED_TO_REMOVE),
    }


def _without_values(add: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without tags, and with no statistics but the number of rows.

    The protocol makes both optional in a remove.
    """
    kept = {name: value for name, value in add.items() if name not in {"stats", "tags"}}
    rows = row_count(add.get("stats"))
    return kept if rows is None else {**kept, "stats": json.dumps({"numRecords": rows})}


def _transaction(change: Change, now_ms: int) -> dict[str, Any]:
    if change.transaction is None:
        raise ValueError("the change has no transaction")
    return {
        "appId": change.transaction.application,
        "version": change.transaction.version,
        "lastUpdated": now_ms,
    }


def _present(action: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: action[name] for name in names if action.get(name) is not None}


def _without_row_ids(add: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in add.items() if name not in _ROW_TRACKING_FIELDS}
