"""Members of file actions as SQL: how each is read from commits and from checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakehand.formats.delta.log.stats_text import text_of_parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakehand.formats.delta.log.source import CheckpointPart

__all__ = [
    "ADD_MEMBERS",
    "REMOVE_MEMBERS",
    "ROW_COUNT",
    "FileKind",
    "decoded_path",
    "line_member",
    "line_types",
    "part_member",
]

FileKind = Literal["add", "remove"]

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
