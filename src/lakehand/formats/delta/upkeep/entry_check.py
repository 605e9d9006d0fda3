"""Statistics in the log that other engines cannot parse, found without reading any file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.formats.delta.log.files import quoted
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.schema import PrimitiveType, physical_name
from lakehand.formats.delta.upkeep.findings import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.model.verification import Finding

__all__ = ["unreadable_statistics"]

_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "HUGEINT"),
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_TREES = ("minValues", "maxValues", "nullCount")
#: Named in a message.
_SHOWN_CHARACTERS = 60


def unreadable_statistics(state: DeltaState) -> Iterator[Finding]:
    """Yield the live files whose statistics are no JSON object, or hold values of other types."""
    version = state.segment.version
    with open_log_source(state.store, state.segment) as source:
        relation = live_relation(source, "add", ("stats",))
        rows = source.run(
            f"SELECT path_key, left(stats, {_SHOWN_CHARACTERS}) FROM {relation} "
            f"WHERE stats IS NOT NULL AND {_is_unreadable(state)} ORDER BY path_key"
        )
    for path, text in rows:
        message = f"the statistics of {path} cannot be read by other engines: {text}"
        yield finding("unreadable_statistics", message, path=path, version=version, found=text)


def _is_unreadable(state: DeltaState) -> str:
    wrong = [
        "json_type(stats) <> 'OBJECT'",
        _cannot_be("stats->>'$.numRecords'", "BIGINT"),
        *(
            f"coalesce(json_type(stats, '$.{name}'), 'NULL') NOT IN ('OBJECT', 'NULL')"
            for name in _TREES
        ),
        *_wrong_values(state),
    ]
    # Nothing may be asked of a text that is no JSON.
    return f"(CASE WHEN json_valid(stats) THEN {' OR '.join(wrong)} ELSE true END)"


def _wrong_values(state: DeltaState) -> Iterator[str]:
    for column in state.schema.fields:
        kind = column.type.name if isinstance(column.type, PrimitiveType) else ""
        # A column that was widened may have bounds of its former type.
        if kind not in _TYPES or "delta.typeChanges" in column.metadata:
            continue
        name = physical_name(column, mode=state.mapping_mode)
        member = name.replace("\\", "\\\\").replace('"', '\\"')
        for tree in ("minValues", "maxValues"):
            path = quoted(f'$.{tree}."{member}"')
            yield _cannot_be(f"stats->>{path}", _TYPES[kind])


def _cannot_be(value: str, type_: str) -> str:
    return f"(({value}) IS NOT NULL AND TRY_CAST(({value}) AS {type_}) IS NULL)"
