"""Which live files lack statistics that the table asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.files.statistics_rules import has_bounds
from lakehand.formats.delta.log.file_members import ROW_COUNT
from lakehand.formats.delta.log.files import quoted
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import open_log_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.files.statistics_rules import StatisticsRules
    from lakehand.formats.delta.log.discovery import LogSegment
    from lakehand.formats.delta.protocol.schema import Leaf
    from lakehand.storage import Store

__all__ = ["paths_lacking_statistics"]

_PARSED = "parsed_statistics"
_MIN, _MAX, _NULLS = "minValues", "maxValues", "nullCount"


def paths_lacking_statistics(store: Store, segment: LogSegment, rules: StatisticsRules) -> pa.Array:
    """Return the decoded paths of live files without a row count, a null count or any bound.

    One of two bounds is enough: a column with NaN has no upper one that all engines understand. A
    column without values has neither.
    """
    parsed = f"TRY(from_json({{stats}}, {quoted(json.dumps(_structure(rules.leaves)))}))"
    with open_log_source(store, segment) as source:
        members = (ROW_COUNT, "deletionVector")
        live = live_relation(source, "add", members, derived={_PARSED: parsed})
        lacks = " OR ".join([f'"{ROW_COUNT}" IS NULL', *map(_lacks, rules.leaves)])
        found = source.stream(f"SELECT path_key AS path FROM {live} WHERE {lacks}").read_all()
    return found["path"].combine_chunks().cast(pa.string())


def _structure(leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Return the shape that statistics are read with; values are only looked for, so as texts."""
    shape: dict[str, Any] = {_NULLS: {}, _MIN: {}, _MAX: {}}
    for leaf in leaves:
        _place(shape, (_NULLS, *leaf.physical_path), "BIGINT")
        if has_bounds(leaf.type):
            _place(shape, (_MIN, *leaf.physical_path), "VARCHAR")
            _place(shape, (_MAX, *leaf.physical_path), "VARCHAR")
    return {name: members for name, members in shape.items() if members}


def _place(shape: dict[str, Any], path: Sequence[str], type_: str) -> None:
    *parents, last = path
    for name in parents:
        shape = shape.setdefault(name, {})
    shape[last] = type_


def _lacks(leaf: Leaf) -> str:
    nulls = _member(_NULLS, leaf)
    if not has_bounds(leaf.type):
        return f"{nulls} IS NULL"
    stored, deleted = f'"{ROW_COUNT}"', "coalesce(deletionVector.cardinality, 0)"
    is_empty = f"{nulls} IN ({stored}, {stored} - {deleted})"
    is_unbounded = f"{_member(_MIN, leaf)} IS NULL AND {_member(_MAX, leaf)} IS NULL"
    return f"{nulls} IS NULL OR ({is_unbounded} AND NOT {is_empty})"


def _member(side: str, leaf: Leaf) -> str:
    names = ('"' + name.replace('"', '""') + '"' for name in leaf.physical_path)
    return ".".join((_PARSED, side, *names))
