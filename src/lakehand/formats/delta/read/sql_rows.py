"""The visible rows of files with one schema, as one DuckDB query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakehand.expressions.literals import quote_identifier
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.partition_values import parse_partition_values
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructType,
    is_void,
    physical_name,
)
from lakehand.formats.delta.read.file_plan import deleted_rows, plan_file
from lakehand.formats.delta.read.projection import find_column
from lakehand.parquet.columns import is_any_list, plain_type, quoted_list, reads_alike, seen_schema
from lakehand.parquet.dictionaries import dictionary_strings
from lakehand.storage.objects import fetch_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb
    import numpy.typing as npt

    from lakehand.formats.delta.protocol.schema import DeltaType, MappingMode, StructField
    from lakehand.formats.delta.read.file_plan import FilePlan, ReadRequest, SourceFile
    from lakehand.parquet.columns import FileColumn

_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_MAX_BITS_IN_DOUBLE = 32


def stored_value(
    kind: DeltaType, found: FileColumn, seen: pa.Schema, mode: MappingMode
) -> str | None:
    """Return SQL for the values of a column, which the file holds as `found`.

    `seen` is what DuckDB sees of the file. None: these values need a reader that knows more.
    """
    position = seen.get_field_index(found.name)
    if position < 0 or not reads_alike(seen.field(position).type, found.type):
        return None
    value = f"stored.{quote_identifier(found.name)}"
    if _is_same(kind, found, mode):
        return value
    wider = _wider_type(plain_type(found.type), arrow_type(kind))
    return None if wider is None else f"CAST({value} AS {wider})"


def _is_same(kind: DeltaType, found: FileColumn, mode: MappingMode) -> bool:
    """Return whether stored values are those of the table, except for names."""
    match kind:
        case StructType():
            return pat.is_struct(found.type) and _has_same_members(kind, found, mode)
        case ArrayType(element):
            return is_any_list(found.type) and _is_same(element, found.parts[0], mode)
        case MapType(key, value):
            return (
                pat.is_map(found.type)
                and _is_same(key, found.parts[0], mode)
                and _is_same(value, found.parts[1], mode)
            )
        case PrimitiveType("variant"):
            return False
    stored = plain_type(found.type)
    if pat.is_timestamp(stored):
        stored = pa.timestamp("us", tz=stored.tz)
    return bool(stored == arrow_type(kind))


def _has_same_members(kind: StructType, found: FileColumn, mode: MappingMode) -> bool:
    return len(kind.fields) == len(found.parts) and all(
        find_column(member, found.parts, mode) is part and _is_same(member.type, part, mode)
        for member, part in zip(kind.fields, found.parts, strict=True)
    )


def _wider_type(have: pa.DataType, want: pa.DataType) -> str | None:
    """Return the SQL name of a type that holds all values of `have`; None: no plain cast does."""
    if pat.is_signed_integer(have):
        return _wider_than_integer(have, want)
    if pat.is_float32(have) and pat.is_float64(want):
        return "DOUBLE"
    if pat.is_decimal(have) and pat.is_decimal(want):
        digits = want.precision - want.scale
        is_wider = want.scale >= have.scale and digits >= have.precision - have.scale
        return f"DECIMAL({want.precision}, {want.scale})" if is_wider else None
    if pat.is_timestamp(have) and pat.is_timestamp(want) and have.tz is None:
        # Instants of the old kind have no zone in the file; the session's zone is UTC.
        return "TIMESTAMPTZ"
    return None


def _wider_than_integer(have: pa.DataType, want: pa.DataType) -> str | None:
    if pat.is_signed_integer(want) and want.bit_width > have.bit_width:
        return _INTEGERS[want.bit_width]
    if pat.is_float64(want) and have.bit_width <= _MAX_BITS_IN_DOUBLE:
        return "DOUBLE"
    return None


_BATCH_BYTES = 8 * 2**20
#: Deletion vectors that are fetched at once.
_VECTORS_AHEAD = 8
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 2 * 1024, 128 * 1024
#: The variable that has a bit for each row.
_DELETED = "deleted"
#: Columns that DuckDB adds, and that a file must therefore not have.
_ADDED = frozenset({"filename", "file_row_number", "file_index"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlRows:
    """A query, the variables that it reads, and how many of its rows make a batch."""

    text: str
    #: A value for each file.
    variables: Mapping[str, pa.Array]
    batch_rows: int
    #: Strings of low-cardinality columns, by position: the query may return their indexes instead.
    texts: Mapping[int, pa.Array]

    def bind(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Set the variables of the query."""
        texts = {texts_variable(position): values for position, values in self.texts.items()}
        for name, values in {**self.variables, **texts}.items():
            numbers = pa.array(range(len(values)), pa.int64())
            connection.register("by_file", pa.table({"number": numbers, "value": values}))
            value = "value::BIT" if name == _DELETED else "value"
            listed = f"(SELECT list({value} ORDER BY number) FROM by_file)"
            connection.execute(f"SET VARIABLE {name} = {listed}")
            connection.unregister("by_file")


def sql_rows(
    connection: duckdb.DuckDBPyConnection,
    request: ReadRequest,
    files: Sequence[SourceFile],
    paths: Sequence[Path],
) -> SqlRows | None:
    """Return the rows of `files`, whose schemas are equal; None if DuckDB would misread some."""
    plan = plan_file(request, files[0])
    seen = seen_schema(connection, paths[0])
    # Names that differ by case only, or are empty, get others from DuckDB: those of other columns.
    if seen.names != [column.name for column in plan.stored]:
        return None
    if _ADDED & {name.lower() for name in seen.names} or _holds_void(request.columns):
        return None
    query = _Query(request=request, plan=plan, seen=seen, files=files)
    values = query.values()
    return None if values is None else query.rows(values, paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Query:
    request: ReadRequest
    #: Of the first file, which stands for all in what concerns columns.
    plan: FilePlan
    seen: pa.Schema
    files: Sequence[SourceFile]

    def values(self) -> list[str] | None:
        """Return SQL for each column; None if there is none for one of them."""
        values = [self._value(position) for position in range(len(self.request.columns))]
        if self.request.row_identity:
            values += self._identity()
        if self.request.places:
            values += [_of_file("number"), "stored.file_row_number"]
        return [value for value in values if value is not None] if all(values) else None

    def rows(self, values: Sequence[str], paths: Sequence[Path]) -> SqlRows:
        source = f"read_parquet({quoted_list(paths)}, hive_partitioning=false) AS stored"
        text = f"SELECT {', '.join(values)} FROM {source}"
        variables = self._given()
        if any(file.hides_rows for file in self.files):
            variables[_DELETED] = self._deleted()
            gone = _of_file(_DELETED)
            # Behind the last deleted row of a file there is no bit, and none at all without one.
            text += (
                f" WHERE CASE WHEN stored.file_row_number < bit_length({gone})"
                f" THEN get_bit({gone}, stored.file_row_number::INTEGER) = 0 ELSE true END"
            )
        return SqlRows(
            text=text,
            variables=variables,
            batch_rows=self._batch_rows(),
            texts=dictionary_strings(paths, self._text_leaves()),
        )

    def _text_leaves(self) -> dict[int, int]:
        """Return the string columns that may come as dictionaries, by their leaf indexes.

        None if there are nested columns, whose parts have to be renamed in every batch.
        """
        if not self.request.dictionaries or any(map(pat.is_nested, self.request.output.types)):
            return {}
        found = {
            position: self._found(column)
            for position, column in enumerate(self.request.columns)
            if column.type == PrimitiveType("string")
        }
        return {
            position: column.leaves[0]
            for position, column in found.items()
            if column is not None and pat.is_string(plain_type(column.type))
        }

    def _value(self, position: int) -> str | None:
        column = self.request.columns[position]
        found = self._found(column)
        if found is None:
            return _of_file(f"given_{position}")
        return stored_value(column.type, found, self.seen, self.request.mode)

    def _found(self, column: StructField) -> FileColumn | None:
        if column.name in self.plan.partition:
            return None
        return find_column(column, self.plan.stored, self.request.mode)

    def _identity(self) -> list[str | None]:
        long = PrimitiveType("long")
        base_id, version = _of_file("base_id"), _of_file("default_version")
        defaults = (f"{base_id} + stored.file_row_number", version)
        columns = (self.plan.identity.id_column, self.plan.identity.version_column)
        values: list[str | None] = []
        for column, default in zip(columns, defaults, strict=True):
            held = stored_value(long, column, self.seen, self.request.mode) if column else "NULL"
            values.append(None if held is None else f"coalesce({held}, {default})")
        return values

    def _given(self) -> dict[str, pa.Array]:
        """Return what is known of each file and not stored in it."""
        given = {
            f"given_{position}": self._given_values(column)
            for position, column in enumerate(self.request.columns)
            if self._found(column) is None
        }
        if self.request.row_identity:
            keys = {"base_id": "baseRowId", "default_version": "defaultRowCommitVersion"}
            for name, key in keys.items():
                given[name] = pa.array([file.add.get(key) for file in self.files], pa.int64())
        if self.request.places:
            given["number"] = pa.array([file.number for file in self.files], pa.int32())
        return given

    def _given_values(self, column: StructField) -> pa.Array | pa.ChunkedArray:
        if column.name not in self.plan.partition:
            return pa.nulls(len(self.files), arrow_type(column.type))
        name = physical_name(column, mode=self.request.mode)
        raw = [(file.add.get("partitionValues") or {}).get(name) for file in self.files]
        texts = pa.chunked_array([pa.array(raw, pa.string())])
        zone = self.request.time_zone
        return parse_partition_values(texts, column.type, time_zone=zone)

    def _deleted(self) -> pa.Array:
        """Return a bit for each row of each file, up to the last that is deleted."""
        fetched = fetch_ahead(
            self.files, lambda file: deleted_rows(self.request, file), window=_VECTORS_AHEAD
        )
        return pa.array([_bits(positions) for positions in fetched], pa.binary())

    def _batch_rows(self) -> int:
        metadata = self.plan.file.metadata
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        plain: int = sum(group.total_byte_size for group in groups)
        rows: int = _BATCH_BYTES * max(metadata.num_rows, 1) // max(plain, 1)
        return max(_MIN_BATCH_ROWS, min(rows, _MAX_BATCH_ROWS))


def texts_variable(position: int) -> str:
    """Return the name of the variable that lists the strings of a column."""
    return f"texts_{position}"


def _of_file(variable: str) -> str:
    """Return SQL for the value that a variable has for the file of a row."""
    return f"list_extract(getvariable('{variable}'), stored.file_index::BIGINT + 1)"


def _bits(positions: npt.NDArray[np.int64]) -> bytes | None:
    if not len(positions):
        return None
    bits = np.zeros(int(positions[-1]) + 1, dtype=np.bool_)
    bits[positions] = True
    return np.packbits(bits).tobytes()


def _holds_void(columns: Sequence[StructField]) -> bool:
    return any(
        _holds_void(column.type.fields)
        if isinstance(column.type, StructType)
        else is_void(column.type)
        for column in columns
    )
