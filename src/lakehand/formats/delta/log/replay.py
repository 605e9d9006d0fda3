"""Reconciliation of a log segment: which file actions are still in force.

The adds of a checkpoint are reconciled already, so only those that a later commit touches are taken
out; the commits, usually few, are reconciled among themselves.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.log.file_members import (
    REMOVE_MEMBERS,
    decoded_path,
    line_member,
    line_types,
    part_member,
)
from lakehand.formats.delta.log.live_actions import live_actions
from lakehand.formats.delta.log.source import open_log_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lakehand.formats.delta.log.discovery import LogSegment
    from lakehand.formats.delta.log.file_members import FileKind
    from lakehand.formats.delta.log.source import CheckpointPart, LogSource
    from lakehand.storage import Store

__all__ = ["live_actions", "live_relation", "live_removes"]

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
        _read_changes(source, kind, members, derived)
        parts = [f"{p} AS base ANTI JOIN newest_{kind} AS newest ON {_SAME_KEY}" for p in parts]
        parts.append(f"newest_{kind} WHERE kind = '{kind}'")
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


def _read_changes(
    source: LogSource, kind: FileKind, members: tuple[str, ...], derived: Mapping[str, str]
) -> None:
    """Read the file actions of the commits into `newest_…`: the last action for each key."""
    other: FileKind = "remove" if kind == "add" else "add"
    needed = (*members, "stats") if derived else members
    types: dict[str, str] = {kind: line_types(kind, needed), other: line_types(other, ())}
    plain = {name: line_member(kind, name) for name in members}
    columns = _aliased(plain | _filled(derived, line_member(kind, "stats")))
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
