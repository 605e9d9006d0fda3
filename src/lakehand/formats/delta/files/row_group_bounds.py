"""What Parquet statistics say of the row groups of a file, in the table's current types."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from lakehand.formats.delta.files.casts import can_cast, cast_values
from lakehand.formats.delta.files.projection import find_column
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.schema import StructType
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.formats.delta.protocol.schema import DeltaType, MappingMode
    from lakehand.parquet.columns import FileColumn
    from lakehand.parquet.reading import OpenFile

__all__ = ["checked_groups", "row_group_facts"]


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

    The footer that `groups` are of was checked: Arrow ends by broken ones.
    """
    bounds = {}
    for path in paths:
        found = _find(path, schema, columns, mode)
        if found is not None:
            bounds[column_text(path)] = _bounds(groups, *found)
    facts = {
        "rows": pa.array([group.num_rows for group in groups], pa.int64()),
        "partition": _struct({n: pa.repeat(v, len(groups)) for n, v in partition.items()}),
        "bounds": _struct(bounds),
    }
    return pa.table({name: array for name, array in facts.items() if array is not None})


def checked_groups(file: OpenFile) -> list[pq.RowGroupMetaData]:
    """Return what Arrow knows of row groups, once it is certain that it can be asked.

    CorruptFileError if the footer is broken.
    """
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
    are of no use to predicates.
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
