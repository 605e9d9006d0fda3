"""Which columns of a table have statistics, and in which form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.intervals import integer_property
from lakehand.formats.delta.protocol.schema import Leaf, PrimitiveType, StructType, is_void, leaves

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakehand.formats.delta.protocol.schema import DeltaType, MappingMode

__all__ = ["StatisticsRules", "has_bounds", "statistics_rules"]

_BOUNDED_TYPES = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string"}
    | {"date", "timestamp", "timestamp_ntz"}
)

_LEAVES_PROPERTY = "delta.dataSkippingNumIndexedCols"
_PREFIX_PROPERTY = "delta.dataSkippingStringPrefixLength"
_DEFAULT_LEAVES = 32
_DEFAULT_PREFIX = 32
_COLUMN_LIST = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsRules:
    """What the statistics of a table's files hold."""

    leaves: tuple[Leaf, ...]
    #: Characters of a string that its bounds keep.
    string_prefix: int = _DEFAULT_PREFIX
    #: Only tables that may have deletion vectors say whether bounds are tight.
    states_tightness: bool = False


def statistics_rules(
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    mode: MappingMode,
    partition_columns: Collection[str],
    clustering_columns: Collection[tuple[str, ...]] = (),
    writer_features: Collection[str] = (),
) -> StatisticsRules:
    """Choose the columns as the table's properties say; clustering columns (physical) always."""
    partition = {name.lower() for name in partition_columns}
    data = StructType(tuple(f for f in schema.fields if f.name.lower() not in partition))
    candidates = [leaf for leaf in leaves(data, mode=mode) if not is_void(leaf.type)]
    listed = configuration.get("delta.dataSkippingStatsColumns")
    if listed is not None:
        chosen = _listed(candidates, listed)
    else:
        count = integer_property(configuration, _LEAVES_PROPERTY, _DEFAULT_LEAVES)
        chosen = candidates if count < 0 else candidates[:count]
    clustered = [leaf for leaf in candidates if leaf.physical_path in set(clustering_columns)]
    return StatisticsRules(
        leaves=tuple(leaf for leaf in candidates if leaf in chosen or leaf in clustered),
        string_prefix=integer_property(configuration, _PREFIX_PROPERTY, _DEFAULT_PREFIX),
        states_tightness="deletionVectors" in writer_features,
    )


def has_bounds(kind: DeltaType) -> bool:
    """Say whether Delta keeps the least and the greatest value of a column of this type."""
    return isinstance(kind, PrimitiveType) and (kind.name in _BOUNDED_TYPES or bool(kind.decimal))


def _listed(candidates: Iterable[Leaf], text: str) -> list[Leaf]:
    """Return the leaves under the columns of a comma list; unknown names choose nothing."""
    wanted = [_column_path(name) for name in _COLUMN_LIST.findall(text)]
    return [
        leaf
        for leaf in candidates
        if any(tuple(part.lower() for part in leaf.path[: len(path)]) == path for path in wanted)
    ]


def _column_path(text: str) -> tuple[str, ...]:
    parts = _NAME_PART.findall(text.strip())
    return tuple((quoted.replace("``", "`") or plain).lower() for quoted, plain in parts)
