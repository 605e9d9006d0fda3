"""Actions as rows of a checkpoint, batch by batch: a million files never sit in memory at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.checkpoints.schema import NON_FILE_KINDS, json_structure
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.parquet.database import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import DeltaType

__all__ = [
    "action_rows",
    "as_pairs",
    "file_rows",
    "in_groups",
    "parse_partitions",
    "parse_statistics",
]

_MAPS = frozenset({"configuration", "options", "partitionValues", "tags"})


def file_rows(kind: str, actions: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return file actions, given as one column a member, as rows with the columns of `schema`."""
    type_ = schema.field(kind).type
    members = [_member(actions, member) for member in type_]
    structs = pa.StructArray.from_arrays(members, fields=list(type_))
    return _rows({kind: structs}, len(structs), schema)


def action_rows(actions: Sequence[tuple[str, Mapping[str, Any]]], schema: pa.Schema) -> pa.Table:
    """Return actions that name no file as rows with the columns of `schema`."""
    columns = {
        kind: _array([as_pairs(value) if kind == of else None for of, value in actions], type_)
        for kind, type_ in NON_FILE_KINDS.items()
    }
    return _rows(columns, len(actions), schema)


def in_groups(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Cut a stream of tables anew into tables of `rows` rows; the last one may be shorter."""
    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        pending.append(table)
        count += table.num_rows
        if count < rows:
            continue
        whole = pa.concat_tables(pending)
        full = count - count % rows
        yield from (whole.slice(start, rows) for start in range(0, full, rows))
        pending, count = [whole.slice(full)], count - full
    if count:
        yield pa.concat_tables(pending)


def parse_statistics(texts: pa.ChunkedArray, type_: pa.StructType) -> pa.Array:
    """Return the statistics in JSON `texts` as structs of `type_`.

    What is absent or cannot be read becomes null, which readers take for unknown. Decimals are
    exact, because the text of a number is never read as a float on its way.
    """
    with connect() as connection:
        connection.register("statistics", pa.table({"texts": texts}))
        valid = "CASE WHEN json_valid(texts) THEN texts END"
        parsed = connection.sql(
            f"SELECT from_json({valid}, ?) AS parsed FROM statistics",
            params=[json_structure(type_)],
        )
        column = parsed.to_arrow_table().column("parsed")
    return _whole(column.cast(type_))


def parse_partitions(values: pa.ChunkedArray, columns: Mapping[str, DeltaType]) -> pa.Array:
    """Return raw partition values as structs with a typed member for each of `columns`."""
    maps = _whole(values)
    members = [
        parse_partition_values(pa.chunked_array([pc.map_lookup(maps, name, "first")]), type_)
        for name, type_ in columns.items()
    ]
    return pa.StructArray.from_arrays(members, names=list(columns))


def _member(actions: pa.Table, member: pa.Field) -> pa.Array:
    if member.name not in actions.column_names:
        return pa.nulls(actions.num_rows, member.type)
    column = actions.column(member.name)
    return _whole(column if column.type == member.type else column.cast(member.type))


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, OverflowError) as error:
        raise CorruptLogError(
            f"an action of the log has a value that does not fit its type: {error}",
            hint="no checkpoint was written; other engines may not read the table either: correct"
            " the value in its commit, and keep a copy of the file",
        ) from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _rows(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.Table:
    arrays = [columns.get(column.name, pa.nulls(count, column.type)) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def as_pairs(value: Any) -> Any:
    """Turn objects that are maps in the schema into the pairs that pyarrow asks for."""
    if not isinstance(value, dict):
        return value
    return {
        name: list(member.items())
        if name in _MAPS and isinstance(member, dict)
        else as_pairs(member)
        for name, member in value.items()
    }
