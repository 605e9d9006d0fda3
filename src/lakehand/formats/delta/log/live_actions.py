"""The full adds of chosen files, as the log has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.log.file_members import decoded_path, part_member
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.actions import file_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakehand.formats.delta.log.discovery import LogSegment
    from lakehand.formats.delta.log.source import CheckpointPart, LogSource
    from lakehand.storage import Store

__all__ = ["live_actions"]

# Typed copies of other members, which only checkpoints have.
_TYPED_COPIES = frozenset({"stats_parsed", "partitionValues_parsed"})
_Key = tuple[str, str | None]


def live_actions(store: Store, segment: LogSegment, paths: Collection[str]) -> list[dict[str, Any]]:
    """Return the adds in force of the files with these decoded paths, in the order of `paths`.

    Every member is there, known to lakehand or not. A path without a live file has no add.
    """
    if not paths:
        return []
    with open_log_source(store, segment) as source:
        source.connection.register("wanted", pa.table({"path": pa.array(paths, pa.string())}))
        newest = _newest_in_lines(source)
        adds = [action for part in source.parts for action in _adds_in_part(source, part)]
        source.connection.unregister("wanted")
    found: dict[str, list[dict[str, Any]]] = {}
    for action in (*adds, *(add for _, kind, add in newest.values() if kind == "add")):
        key = file_key(action)
        if key not in newest or newest[key][2] is action:
            found.setdefault(key[0], []).append(action)
    return [action for path in dict.fromkeys(paths) for action in found.get(path, ())]


def _newest_in_lines(source: LogSource) -> dict[_Key, tuple[int, str, dict[str, Any]]]:
    """Return the last action of the commits for each key: its version, its kind and itself."""
    newest: dict[_Key, tuple[int, str, dict[str, Any]]] = {}
    for version, kind, action in _actions_in_lines(source):
        key = file_key(action)
        if key not in newest or newest[key][0] < version:
            newest[key] = (version, kind, action)
    return newest


def _actions_in_lines(source: LogSource) -> Iterator[tuple[int, str, dict[str, Any]]]:
    if not source.lines:
        return
    relation = source.lines.relation({"add": "JSON", "remove": "JSON"})
    path = decoded_path("json_extract_string(coalesce(add, remove), '$.path')")
    rows = source.run(
        f"SELECT version, add, remove FROM {relation} "
        f"WHERE (add IS NOT NULL OR remove IS NOT NULL) AND {path} IN (SELECT path FROM wanted)"
    )
    for version, add, remove in rows:
        kind, text = ("add", add) if add is not None else ("remove", remove)
        action = source.parse(kind, text, version)
        if action is not None:
            yield version, kind, action


def _adds_in_part(source: LogSource, part: CheckpointPart) -> Iterator[dict[str, Any]]:
    if part.member("add", "path") is None:
        return
    query = (
        f"SELECT {_members(part)} FROM {part.relation} "
        f"WHERE {decoded_path('add.path')} IN (SELECT path FROM wanted)"
    )
    for row in source.stream(query).read_all().to_pylist(maps_as_pydicts="strict"):
        yield {"partitionValues": {}} | source.checked("add", _present(row))


def _members(part: CheckpointPart) -> str:
    names = {member.name for member in part.schema.field("add").type} | {"stats"}
    rewritten = {name: part_member(part, "add", name) for name in ("stats", "deletionVector")}
    columns = [
        f'{rewritten.get(name, f"""add."{name}" """)} AS "{name}"'
        for name in sorted(names - _TYPED_COPIES)
    ]
    return ", ".join(columns)


def _present(value: dict[str, Any]) -> dict[str, Any]:
    """Leave out members that are null, as the log does; values of maps may be null."""
    vector = value.get("deletionVector")
    if vector is not None:
        vector = {name: item for name, item in vector.items() if item is not None}
    present = value | {"deletionVector": vector}
    return {name: item for name, item in present.items() if item is not None}
