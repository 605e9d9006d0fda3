"""Which columns have statistics, and statistics of a file made of others, from theirs alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.protocol.actions import integer_property, load_json
from lakehand.formats.delta.protocol.schema import Leaf, PrimitiveType, StructType, is_void, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import DeltaType, Leaf, MappingMode

#: Nested objects; their values are trees or JSON strings.
Tree = dict[str, Any]

_LONG = PrimitiveType("long")


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsMember:
    """A member of `add.stats`, from which the columns of checkpoints are made."""

    name: str
    type: PrimitiveType = _LONG
    is_by_column: bool = False
    #: One value per column that has bounds, of the type of the column.
    is_bound: bool = False
    #: Only tables that may have deletion vectors have it.
    needs_deletion_vectors: bool = False


#: In the order of checkpoints.
STATISTICS_MEMBERS = (
    StatisticsMember(name="numRecords"),
    StatisticsMember(name="minValues", is_by_column=True, is_bound=True),
    StatisticsMember(name="maxValues", is_by_column=True, is_bound=True),
    StatisticsMember(name="nullCount", is_by_column=True),
    StatisticsMember(
        name="tightBounds", type=PrimitiveType("boolean"), needs_deletion_vectors=True
    ),
)


def put(tree: Tree, leaf: Leaf, text: str | None) -> None:
    """Put a JSON text at the place of a leaf; None puts nothing."""
    if text is None:
        return
    for name in leaf.physical_path[:-1]:
        tree = tree.setdefault(name, {})
    tree[leaf.physical_path[-1]] = text


def tree_text(tree: Tree | str) -> str:
    """Print a tree as JSON."""
    if isinstance(tree, str):
        return tree
    members = [f"{string_text(name)}:{tree_text(value)}" for name, value in tree.items()]
    return "{" + ",".join(members) + "}"


def string_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


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
    """Return whether Delta keeps the minimum and maximum of a column of this type."""
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


MIN, MAX, NULLS = "minValues", "maxValues", "nullCount"
_TEXT_KINDS = ("string", "char", "varchar")


def merge_statistics(
    texts: Sequence[str | None], row_counts: Sequence[int], rules: StatisticsRules
) -> str:
    """Return `add.stats` of a file with all rows of files whose statistics are given as JSON.

    `row_counts` are the files' physical rows, by their footers; no row of them is deleted.
    """
    files = [parse_statistics(text) for text in texts]
    minima: Tree = {}
    maxima: Tree = {}
    counts: Tree = {}
    for leaf in rules.leaves:
        nulls = [member(file, NULLS, leaf) for file in files]
        put(counts, leaf, _sum_text(nulls))
        all_null = [count == rows for count, rows in zip(nulls, row_counts, strict=True)]
        with_values = [file for file, is_null in zip(files, all_null, strict=True) if not is_null]
        put(
            minima,
            leaf,
            _bound_text([member(file, MIN, leaf) for file in with_values], leaf, min),
        )
        put(
            maxima,
            leaf,
            _bound_text([member(file, MAX, leaf) for file in with_values], leaf, max),
        )
    document: Tree = {"numRecords": str(sum(row_counts))}
    document |= {MIN: minima, MAX: maxima, NULLS: counts}
    if rules.states_tightness:
        is_tight = all(file.get("tightBounds", True) is True for file in files)
        document["tightBounds"] = "true" if is_tight else "false"
    return tree_text(document)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it was written."""

    text: str


def parse_statistics(text: str | None) -> dict[str, Any]:
    """Return statistics with their numbers as written; nothing where they cannot be read."""
    try:
        parsed = load_json(text, parse_float=_Number) if text else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def member(file: Mapping[str, Any], name: str, leaf: Leaf) -> Any:
    """Return what statistics say of a leaf under `name`; None where they say nothing."""
    value: Any = file.get(name)
    for part in leaf.physical_path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _sum_text(counts: Sequence[Any]) -> str | None:
    return str(sum(counts)) if all(isinstance(count, int) for count in counts) else None


def _bound_text(bounds: Sequence[Any], leaf: Leaf, choose: Callable[..., Any]) -> str | None:
    """Return the outermost bound; None if a file has none, or one that cannot be compared."""
    if not bounds or not isinstance(leaf.type, PrimitiveType):
        return None
    kind = leaf.type.name
    try:
        bound = choose(bounds, key=lambda candidate: comparable(candidate, kind))
    except (TypeError, ValueError, ArithmeticError):
        return None
    return bound.text if isinstance(bound, _Number) else json.dumps(bound, ensure_ascii=False)


def comparable(bound: Any, kind: str) -> Any:
    """Return a bound as a value that sorts as the values of `kind` do; ValueError if none does."""
    if kind in {"timestamp", "timestamp_ntz"}:
        at = datetime.fromisoformat(bound)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    if kind == "date":
        # Strings of years before 0 and after 9999 do not sort as dates do; they are refused here.
        return date.fromisoformat(bound)
    if isinstance(bound, str):
        if not kind.startswith(_TEXT_KINDS):
            # "NaN" and infinities: engines do not agree where they sort.
            raise ValueError(f"{bound!r} has no place in the order of {kind}")
        return bound.encode()
    if isinstance(bound, bool):
        raise TypeError(f"{kind} has no bounds")
    return Decimal(bound.text if isinstance(bound, _Number) else bound)
