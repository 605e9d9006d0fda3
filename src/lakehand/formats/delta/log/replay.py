"""Log replay: which file actions of a log segment are still in force."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptLogError
from lakehand.expressions.literals import quote_identifier
from lakehand.formats.delta.log.log_source import CheckpointPart, LogSource, open_log_source
from lakehand.formats.delta.log.short_log import Action, FileKind, file_actions, newest_files
from lakehand.formats.delta.protocol.actions import file_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.storage import Store


def text_of_parsed(expression: str, type_: pa.StructType) -> str:
    """Return SQL that prints a struct of statistics as JSON; members that are null are left out.

    DuckDB's own printing would lose digits of decimals and write NaN as no JSON reader takes it.
    """
    return f"CASE WHEN {expression} IS NOT NULL THEN {_object(expression, type_)} END"


def _object(expression: str, type_: pa.StructType) -> str:
    members = ", ".join(_member(expression, member) for member in type_)
    return f"'{{' || concat_ws(',', {members}) || '}}'" if members else "'{}'"


def _member(expression: str, member: pa.Field) -> str:
    inner = f"{expression}.{quote_identifier(member.name)}"
    name = member.name.replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    return f"CASE WHEN {inner} IS NOT NULL THEN '\"{name}\":' || {_value(inner, member.type)} END"


def _value(expression: str, type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return _object(expression, type_)
    if pa.types.is_timestamp(type_):
        zone = "Z" if type_.tz or type_.unit == "ns" else ""
        form = f"%Y-%m-%dT%H:%M:%S.%f{zone}"
        return f"'\"' || strftime(CAST({expression} AS TIMESTAMP), '{form}') || '\"'"
    if pa.types.is_date(type_):
        return f"'\"' || CAST({expression} AS VARCHAR) || '\"'"
    if pa.types.is_floating(type_):
        text = f"CAST({expression} AS VARCHAR)"
        return f"CASE WHEN isfinite({expression}) THEN {text} ELSE {_special(expression)} END"
    if _prints_bare(type_):
        return f"CAST({expression} AS VARCHAR)"
    return f"CAST(to_json(CAST({expression} AS VARCHAR)) AS VARCHAR)"


def _special(expression: str) -> str:
    infinite = f"CASE WHEN {expression} > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    return f"CASE WHEN isnan({expression}) THEN '\"NaN\"' ELSE {infinite} END"


def _prints_bare(type_: pa.DataType) -> bool:
    checks: Iterable[bool] = (
        pa.types.is_integer(type_),
        pa.types.is_decimal(type_),
        pa.types.is_boolean(type_),
    )
    return any(checks)


_TEXT_MAP = "MAP(VARCHAR, VARCHAR)"
_VECTOR_MEMBERS: Mapping[str, str] = {
    "storageType": "VARCHAR",
    "pathOrInlineDv": "VARCHAR",
    "offset": "INTEGER",
    "sizeInBytes": "INTEGER",
    "cardinality": "BIGINT",
}
_VECTOR = "STRUCT(" + ", ".join(f'"{n}" {t}' for n, t in _VECTOR_MEMBERS.items()) + ")"

#: Members as they are spelled in the log, with the types that DuckDB gives them.
ADD_MEMBERS: Mapping[str, str] = {
    "path": "VARCHAR",
    "partitionValues": _TEXT_MAP,
    "size": "BIGINT",
    "modificationTime": "BIGINT",
    "dataChange": "BOOLEAN",
    "stats": "VARCHAR",
    "tags": _TEXT_MAP,
    "deletionVector": _VECTOR,
    "baseRowId": "BIGINT",
    "defaultRowCommitVersion": "BIGINT",
    "clusteringProvider": "VARCHAR",
}
REMOVE_MEMBERS: Mapping[str, str] = {
    "path": "VARCHAR",
    "deletionTimestamp": "BIGINT",
    "dataChange": "BOOLEAN",
    "extendedFileMetadata": "BOOLEAN",
    "partitionValues": _TEXT_MAP,
    "size": "BIGINT",
    "stats": "VARCHAR",
    "tags": _TEXT_MAP,
    "deletionVector": _VECTOR,
    "baseRowId": "BIGINT",
    "defaultRowCommitVersion": "BIGINT",
}
_MEMBERS: Mapping[FileKind, Mapping[str, str]] = {"add": ADD_MEMBERS, "remove": REMOVE_MEMBERS}
#: Read out of the statistics in the same pass, because almost every plan needs it.
ROW_COUNT = "numRecords"


def decoded_path(raw: str) -> str:
    """Return SQL that does to a column what `paths.decode_path` does to a string."""
    decoded = f"(CASE WHEN contains({raw}, '%') THEN url_decode({raw}) ELSE {raw} END)"
    return f"(CASE WHEN starts_with({decoded}, 'file:///') THEN {decoded}[8:] ELSE {decoded} END)"


def line_types(kind: FileKind, members: tuple[str, ...]) -> str:
    """Return the type that lines of `kind` are read with: no more members than asked for."""
    needed = {"stats" if name == ROW_COUNT else name for name in members}
    types = {n: t for n, t in _MEMBERS[kind].items() if n in needed | {"path", "deletionVector"}}
    return "STRUCT(" + ", ".join(f'"{name}" {type_}' for name, type_ in types.items()) + ")"


def line_member(kind: FileKind, name: str) -> str:
    """Return SQL for a member of an action in a commit."""
    if name == ROW_COUNT:
        return _row_count(f"{kind}.stats")
    return f'{kind}."{name}"'


def part_member(part: CheckpointPart, kind: FileKind, name: str) -> str:
    """Return SQL for a member of an action in a checkpoint; null where its writer left it out."""
    if name == ROW_COUNT:
        return _part_row_count(part, kind)
    if name == "stats":
        return _part_stats(part, kind)
    type_ = _MEMBERS[kind][name]
    field = part.member(kind, name)
    if field is None:
        return f"CAST(NULL AS {type_})"
    if name == "deletionVector":
        return _part_vector(f"{kind}.deletionVector", field.type)
    return f'CAST({kind}."{name}" AS {type_})'


def _part_vector(expression: str, type_: pa.StructType) -> str:
    known = {member.name for member in type_}
    packed = ", ".join(
        f'"{name}" := CAST({_inner(expression, name, known)} AS {member})'
        for name, member in _VECTOR_MEMBERS.items()
    )
    # Engines write a struct of nulls where there is no deletion vector.
    return f"CASE WHEN {expression}.storageType IS NOT NULL THEN struct_pack({packed}) END"


def _inner(expression: str, name: str, known: set[str]) -> str:
    return f'{expression}."{name}"' if name in known else "NULL"


def _part_stats(part: CheckpointPart, kind: FileKind) -> str:
    sources = []
    if part.member(kind, "stats") is not None:
        sources.append(f"{kind}.stats")
    parsed = part.member(kind, "stats_parsed")
    if parsed is not None:
        sources.append(text_of_parsed(f"{kind}.stats_parsed", parsed.type))
    return f"coalesce({', '.join(sources)})" if sources else "CAST(NULL AS VARCHAR)"


def _part_row_count(part: CheckpointPart, kind: FileKind) -> str:
    sources = []
    parsed = part.member(kind, "stats_parsed")
    if parsed is not None and parsed.type.get_field_index(ROW_COUNT) >= 0:
        sources.append(f"CAST({kind}.stats_parsed.{ROW_COUNT} AS BIGINT)")
    if part.member(kind, "stats") is not None and not part.has_row_counts:
        sources.append(_row_count(f"{kind}.stats"))
    return f"coalesce({', '.join(sources)})" if sources else "CAST(NULL AS BIGINT)"


def _row_count(stats: str) -> str:
    """Return SQL for the row count in statistics; statistics that are no JSON say nothing."""
    return f"TRY(CAST(json_extract_string({stats}, '$.{ROW_COUNT}') AS BIGINT))"


_SAME_KEY = "base.path_key = newest.path_key AND base.vector_key = newest.vector_key"


def _vector_key(vector: str) -> str:
    """Return SQL for the identity of a deletion vector; empty: none, null: it lacks a member."""
    offset = f"coalesce('@' || {vector}.\"offset\", '')"
    identity = f"{vector}.storageType || {vector}.pathOrInlineDv || {offset}"
    return f"(CASE WHEN {vector} IS NULL THEN '' ELSE {identity} END)"


@contextmanager
def live_removes(
    store: Store, segment: LogSegment, *, batch_rows: int = 100_000
) -> Iterator[pa.RecordBatchReader]:
    """Stream the tombstones, expired ones too where the log still holds them."""
    with open_log_source(store, segment) as source:
        relation = live_relation(source, "remove", tuple(REMOVE_MEMBERS))
        query = f"SELECT * EXCLUDE path_key FROM {relation}"
        yield source.stream(query, batch_rows=batch_rows)


def live_relation(
    source: LogSource,
    kind: FileKind,
    members: tuple[str, ...],
    *,
    derived: Mapping[str, str] | None = None,
) -> str:
    """Return a relation with one row for each action of `kind` in force, one column a member.

    The decoded path is there as `path_key`. `derived` names further columns and the SQL that makes
    them of the statistics, `{stats}`.
    """
    derived = derived or {}
    parts = [_part_relation(part, kind, members, derived) for part in source.parts]
    if source.lines:
        newest = _newest(source, kind, members, derived)
        parts = [f"{p} AS base ANTI JOIN {newest} AS newest ON {_SAME_KEY}" for p in parts]
        parts.append(f"{newest} WHERE kind = '{kind}'")
    names = ", ".join(f'"{name}"' for name in (*members, *derived, "path_key"))
    return "(" + " UNION ALL ".join(f"SELECT {names} FROM {part}" for part in parts) + ")"


def _part_relation(
    part: CheckpointPart, kind: FileKind, members: tuple[str, ...], derived: Mapping[str, str]
) -> str:
    plain = {name: part_member(part, kind, name) for name in members}
    columns = _aliased(plain | _filled(derived, part_member(part, kind, "stats")))
    if part.member(kind, "path") is None:
        return f"(SELECT {columns}, '' AS path_key, '' AS vector_key WHERE false)"
    vector = part_member(part, kind, "deletionVector")
    return (
        f"(SELECT {columns}, {decoded_path(f'{kind}.path')} AS path_key, "
        f"{_vector_key(f'({vector})')} AS vector_key "
        f"FROM {part.relation} WHERE {kind}.path IS NOT NULL)"
    )


def _aliased(columns: Mapping[str, str]) -> str:
    return ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())


def _filled(derived: Mapping[str, str], stats: str) -> dict[str, str]:
    return {name: template.replace("{stats}", stats) for name, template in derived.items()}


def _newest(
    source: LogSource, kind: FileKind, members: tuple[str, ...], derived: Mapping[str, str]
) -> str:
    """Return a relation with the last action of the commits for each key."""
    plain = {name: line_member(kind, name) for name in members}
    columns = _aliased(plain | _filled(derived, line_member(kind, "stats")))
    if source.few_actions is not None:
        found = newest_files(source.few_actions, kind)
        if found is not None:
            source.connection.register(f"short_{kind}", found)
            return f"(SELECT {columns}, kind, path_key, vector_key FROM short_{kind})"
    _read_changes(source, kind, (*members, "stats") if derived else members, columns)
    return f"newest_{kind}"


def _read_changes(source: LogSource, kind: FileKind, needed: tuple[str, ...], columns: str) -> None:
    """Read the file actions of the commits into `newest_…`: the last action for each key."""
    other: FileKind = "remove" if kind == "add" else "add"
    types: dict[str, str] = {kind: line_types(kind, needed), other: line_types(other, ())}
    vector = "coalesce(add.deletionVector, remove.deletionVector)"
    source.run(
        f"CREATE OR REPLACE TEMP TABLE changes AS SELECT version, {columns}, "
        f"CASE WHEN {kind} IS NOT NULL THEN '{kind}' ELSE '{other}' END AS kind, "
        f"add IS NOT NULL AND remove IS NOT NULL AS is_double, "
        f"{decoded_path('coalesce(add.path, remove.path)')} AS path_key, "
        f"{_vector_key(vector)} AS vector_key "
        f"FROM {source.lines.relation(types)} WHERE add IS NOT NULL OR remove IS NOT NULL"
    )
    _require_unambiguous(source)
    source.run(
        f"CREATE OR REPLACE TEMP TABLE newest_{kind} AS SELECT * FROM changes QUALIFY "
        "row_number() OVER (PARTITION BY path_key, vector_key ORDER BY version DESC) = 1"
    )
    source.run("DROP TABLE changes")


def _require_unambiguous(source: LogSource) -> None:
    """Refuse commits that do not say whether a file is there; the order of lines is no answer."""
    rows = source.run(
        "SELECT version, path_key, vector_key FROM changes GROUP BY ALL HAVING path_key IS NULL "
        "OR vector_key IS NULL OR bool_or(is_double) OR count(DISTINCT kind) > 1 LIMIT 1"
    )
    if not rows:
        return
    version, path, vector = rows[0]
    what = f"adds and removes {path}"
    if path is None:
        what = "holds a file action without a path"
    elif vector is None:
        what = f"names a deletion vector of {path} that lacks a member"
    raise CorruptLogError(
        f"version {version} of {source.table} {what}",
        table=source.table,
        version=version,
        hint="the commit breaks the protocol, so the content of the table cannot be known",
    )


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
        newest = _newest_in_lines(source, frozenset(paths))
        adds = [action for part in source.parts for action in _adds_in_part(source, part)]
        source.connection.unregister("wanted")
    found: dict[str, list[dict[str, Any]]] = {}
    for action in (*adds, *(add for _, kind, add in newest.values() if kind == "add")):
        key = file_key(action)
        if key not in newest or newest[key][2] is action:
            found.setdefault(key[0], []).append(action)
    return [action for path in dict.fromkeys(paths) for action in found.get(path, ())]


def _newest_in_lines(source: LogSource, paths: Collection[str]) -> dict[_Key, Action]:
    """Return the last action of the commits for each key: its version, its kind and itself."""
    newest: dict[_Key, Action] = {}
    for version, kind, action in _actions_in_lines(source, paths):
        key = file_key(action)
        if key not in newest or newest[key][0] < version:
            newest[key] = (version, kind, action)
    return newest


def _actions_in_lines(source: LogSource, paths: Collection[str]) -> Iterator[Action]:
    if not source.lines:
        return
    named = None if source.few_actions is None else file_actions(source.few_actions)
    if named is not None:
        for (path, _), (version, kind, value) in named:
            if path in paths:
                yield version, kind, source.checked_line(kind, value, version)
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
