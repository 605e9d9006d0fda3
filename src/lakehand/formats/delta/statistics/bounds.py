"""Typed bounds of columns: of files from the log, and of row groups from the footer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import UnknownColumnError
from lakehand.expressions.literals import quote_identifier, quote_string
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import Leaf, PrimitiveType, StructType, leaves
from lakehand.formats.delta.read.projection import can_cast, cast_values, find_column
from lakehand.model.snapshot import quoted_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.formats.delta.protocol.schema import DeltaType, MappingMode
    from lakehand.parquet.columns import FileColumn
    from lakehand.parquet.row_group_reader import OpenFile

_PARSED = "parsed_statistics"
_TYPES: Mapping[str, str] = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "string": "VARCHAR",
}
# Read as text first, because JSON has no such values.
_AS_TEXT = frozenset({"date", "timestamp", "timestamp_ntz"})
#: Digits of a decimal that survive a double.
_EXACT_DIGITS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundsRequest:
    """SQL that turns statistics into bounds, in two steps: parse once, then pick and cast."""

    #: Name of the parsed statistics, and what makes them of the text `{stats}`.
    parsed: Mapping[str, str]
    #: What makes the column `bounds` of them.
    selection: str
    #: Type of the column `bounds`.
    type: pa.StructType


def request_bounds(
    columns: Sequence[str], schema: StructType, mode: MappingMode
) -> BoundsRequest | None:
    """Return how to read the bounds of `columns`; None if there are none.

    Dots separate the names of nested fields; a name that contains a dot is in backticks. A name
    with spaces or commas may be.
    `bounds` has a member for each column, under the name it was asked by, with `min`, `max` and
    `nulls`. Bounds may be wider than the values; `nulls` is null where the count is not exact.
    """
    if not columns:
        return None
    every = list(leaves(schema, mode=mode))
    plain = {leaf.path[0].lower(): leaf for leaf in every if len(leaf.path) == 1}
    known = plain | {quoted_column(leaf.path).lower(): leaf for leaf in every}
    for name in columns:
        if name.lower() not in known:
            raise UnknownColumnError(name, [quoted_column(leaf.path) for leaf in every])
    chosen = {name: known[name.lower()] for name in columns}
    structure = quote_string(json.dumps(_structure(list(chosen.values()))))
    return BoundsRequest(
        parsed={_PARSED: f"TRY(from_json({{stats}}, {structure}))"},
        selection=_pack({name: _select(leaf) for name, leaf in chosen.items()}),
        type=pa.struct([(name, _bounds_type(leaf)) for name, leaf in chosen.items()]),
    )


def _structure(columns: Sequence[Leaf]) -> dict[str, Any]:
    """Return the shape that statistics are read with: no members beyond those needed."""
    shape: dict[str, Any] = {"numRecords": "BIGINT", "tightBounds": "BOOLEAN"}
    for leaf in columns:
        type_ = _sql_type(leaf.type)
        if type_ is not None:
            as_read = "VARCHAR" if _name(leaf.type) in _AS_TEXT else type_
            _place(shape, ("minValues", *leaf.physical_path), as_read)
            _place(shape, ("maxValues", *leaf.physical_path), as_read)
        _place(shape, ("nullCount", *leaf.physical_path), "BIGINT")
    return shape


def _place(shape: dict[str, Any], path: Sequence[str], type_: str) -> None:
    *parents, last = path
    for name in parents:
        shape = shape.setdefault(name, {})
    shape[last] = type_


def _select(leaf: Leaf) -> str:
    nulls = _member("nullCount", leaf)
    # Deletion vectors leave counts behind that hold only where they say "none" or "all".
    exact = f"{_PARSED}.tightBounds IS DISTINCT FROM false OR {nulls} IN (0, {_PARSED}.numRecords)"
    return _pack(
        {
            "min": _lower(leaf, _value("minValues", leaf)),
            "max": _upper(leaf, _value("maxValues", leaf)),
            "nulls": f"CASE WHEN {exact} THEN {nulls} END",
        }
    )


def _value(side: str, leaf: Leaf) -> str:
    type_ = _sql_type(leaf.type)
    return "NULL" if type_ is None else f"TRY_CAST({_member(side, leaf)} AS {type_})"


def _lower(leaf: Leaf, value: str) -> str:
    """Return a bound that is below all that its writer may have meant by `value`."""
    if "float" in leaf.former_types:
        return f"least({value}, {_as_float(value)})"
    if _digits(leaf.type) > _EXACT_DIGITS:
        return _unless_exact(leaf.type, value, f"CAST({value} AS DOUBLE) - {_slack(value)}")
    return value


def _upper(leaf: Leaf, value: str) -> str:
    """Return a bound that is above all that its writer may have meant by `value`."""
    if "float" in leaf.former_types:
        return f"greatest({value}, {_as_float(value)})"
    if _digits(leaf.type) > _EXACT_DIGITS:
        return _unless_exact(leaf.type, value, f"CAST({value} AS DOUBLE) + {_slack(value)}")
    return value


def _as_float(value: str) -> str:
    """Read a bound as it was before its column was widened: the text 0.7 of a float is less."""
    return f"CAST(TRY_CAST({value} AS FLOAT) AS DOUBLE)"


def _unless_exact(type_: DeltaType, value: str, moved: str) -> str:
    """Move a bound of more digits than a double holds: delta-rs prints such decimals as doubles."""
    _, scale = _decimal(type_)
    limit = f"CAST(1e{_EXACT_DIGITS - scale} AS DOUBLE)"
    is_exact = f"abs(CAST({value} AS DOUBLE)) < {limit}"
    return f"CASE WHEN {is_exact} THEN {value} ELSE TRY_CAST({moved} AS {_sql_type(type_)}) END"


def _slack(value: str) -> str:
    # More than a double and the cast back to a decimal can be off together.
    return f"abs(CAST({value} AS DOUBLE)) * 1e-15"


def _digits(type_: DeltaType) -> int:
    return _decimal(type_)[0]


def _decimal(type_: DeltaType) -> tuple[int, int]:
    found = type_.decimal if isinstance(type_, PrimitiveType) else None
    return found or (0, 0)


def _member(side: str, leaf: Leaf) -> str:
    return ".".join((_PARSED, side, *(quote_identifier(name) for name in leaf.physical_path)))


def _pack(members: Mapping[str, str]) -> str:
    inner = ", ".join(f"{quote_identifier(name)} := {value}" for name, value in members.items())
    return f"struct_pack({inner})"


def _sql_type(type_: DeltaType) -> str | None:
    """Return the DuckDB type of a column that has bounds; None for columns that have none."""
    if not isinstance(type_, PrimitiveType):
        return None
    return f"DECIMAL({type_.decimal[0]}, {type_.decimal[1]})" if type_.decimal else _named(type_)


def _named(type_: PrimitiveType) -> str | None:
    return _TYPES.get(type_.name)


def _name(type_: DeltaType) -> str:
    return type_.name if isinstance(type_, PrimitiveType) else ""


def _bounds_type(leaf: Leaf) -> pa.StructType:
    value = arrow_type(leaf.type)
    return pa.struct([("min", value), ("max", value), ("nulls", pa.int64())])


def row_group_facts(
    groups: Sequence[pq.RowGroupMetaData],
    columns: Sequence[FileColumn],
    paths: Sequence[tuple[str, ...]],
    *,
    schema: StructType,
    mode: MappingMode,
    partition: Mapping[str, pa.Scalar],
) -> pa.Table:
    """Return one row per row group, with the columns of `Snapshot.files` that pruning needs.

    The footer must have been checked: Arrow ends the process on statistics that it cannot read.
    """
    bounds = {}
    for path in paths:
        found = _find(path, schema, columns, mode)
        if found is not None:
            bounds[quoted_column(path)] = _bounds(groups, *found)
    facts = {
        "rows": pa.array([group.num_rows for group in groups], pa.int64()),
        "partition": _struct({n: pa.repeat(v, len(groups)) for n, v in partition.items()}),
        "bounds": _struct(bounds),
    }
    return pa.table({name: array for name, array in facts.items() if array is not None})


def checked_groups(file: OpenFile) -> list[pq.RowGroupMetaData]:
    """Return what Arrow knows of row groups; CorruptFileError if it cannot be asked safely."""
    _ = file.footer.checked
    return [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]


def _struct(members: Mapping[str, pa.Array]) -> pa.StructArray | None:
    if not members:
        return None
    return pa.StructArray.from_arrays(list(members.values()), list(members))


def _find(
    path: tuple[str, ...], schema: StructType, columns: Sequence[FileColumn], mode: MappingMode
) -> tuple[FileColumn, pa.DataType] | None:
    """Return the stored column behind a path of structs, and the type its values are read as."""
    kind: DeltaType = schema
    found: FileColumn | None = None
    for name in path:
        field = kind.find(name) if isinstance(kind, StructType) else None
        found = None if field is None else find_column(field, columns, mode)
        if field is None or found is None:
            return None
        kind, columns = field.type, found.parts
    if found is None or found.parts or isinstance(kind, StructType):
        return None
    want = arrow_type(kind)
    return (found, want) if can_cast(found.type, want) else None


def _bounds(
    groups: Sequence[pq.RowGroupMetaData], column: FileColumn, want: pa.DataType
) -> pa.StructArray:
    statistics = [_statistics(group.column(column.leaves[0])) for group in groups]
    convert = _converter(column.type)
    ends = [_ends(found, convert) for found in statistics]
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    return pa.StructArray.from_arrays(
        [
            _typed([low for low, _ in ends], column.type, want),
            _typed([high for _, high in ends], column.type, want),
            pa.array(nulls, pa.int64()),
        ],
        ["min", "max", "nulls"],
    )


def _statistics(chunk: pq.ColumnChunkMetaData) -> pq.Statistics | None:
    # Writers may shorten the bounds of fixed bytes, which Arrow then cannot read and ends by.
    return None if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY" else chunk.statistics


def _ends(found: pq.Statistics | None, convert: Callable[[Any], Any] | None) -> tuple[Any, Any]:
    if found is None or convert is None or not found.has_min_max:
        return None, None
    return convert(found.min_raw), convert(found.max_raw)


def _typed(values: list[Any], have: pa.DataType, want: pa.DataType) -> pa.Array:
    try:
        if pat.is_date32(have) or pat.is_timestamp(have):
            stored = pa.int32() if pat.is_date32(have) else pa.int64()
            return cast_values(pa.array(values, stored).view(have), want)
        return cast_values(pa.array(values, have), want)
    except (pa.ArrowException, OverflowError, ValueError):
        return pa.nulls(len(values), want)


def _converter(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how a stored bound becomes a value; None where bounds cannot be trusted.

    Bounds of decimals in bytes compare in different orders by writer, and those of binary values
    are not used by predicates.
    """
    if pat.is_string(type_) or pat.is_large_string(type_):
        return _text
    if pat.is_decimal(type_):
        return lambda raw: None if isinstance(raw, bytes) else Decimal(raw).scaleb(-type_.scale)
    if pat.is_unsigned_integer(type_):
        return None
    is_plain = pat.is_primitive(type_) and not pat.is_time(type_)
    return (lambda raw: None if isinstance(raw, bytes) else raw) if is_plain else None


def _text(raw: bytes | str) -> str | None:
    try:
        return raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
