"""The schema of a table inside its files: physical names, field ids, all optional."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import LakehandError, RefusedError
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.clustering import CUBE_ID
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    field_id,
    is_void,
    physical_name,
)
from lakehand.formats.delta.read.file_plan import RowIdentity
from lakehand.formats.delta.read.projection import project_rows, relabel
from lakehand.parquet.calendar import MARKER_KEYS
from lakehand.parquet.checksums import crc32, read_blocks
from lakehand.parquet.columns import FileColumn, file_columns
from lakehand.parquet.footer_facts import read_many_facts
from lakehand.parquet.rebase import RecodedCalendar
from lakehand.parquet.row_group_reader import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import DeltaType
    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.model.work import DataFile, StagedFile
    from lakehand.storage import Store

_FIELD_ID = b"PARQUET:field_id"
# Spark reads a variant only if both of its parts are required.
_VARIANT = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSchema:
    """The columns of a file, and how logical rows become rows of it."""

    #: Logical columns that the file holds, in its order.
    columns: tuple[StructField, ...]
    #: Columns of a batch that are written under another name and belong to no logical column.
    extras: tuple[tuple[str, str], ...]
    arrow: pa.Schema

    def choose(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a logical `batch` that the file holds, in its order."""
        names = [*(column.name for column in self.columns), *(name for name, _ in self.extras)]
        return batch if batch.schema.names == names else batch.select(names)

    def to_file(self, rows: pa.Table) -> pa.Table:
        """Return logical `rows` as the file holds them, without a copy."""
        columns = [_drop_void(rows.column(column.name), column.type) for column in self.columns]
        columns += [rows.column(name) for name, _ in self.extras]
        named = pa.Table.from_arrays(columns, self.arrow.names)
        wanted = _coded_schema(self.arrow, named.schema)
        if named.schema.types == wanted.types and not any(map(pat.is_nested, wanted.types)):
            return pa.Table.from_arrays(columns, schema=wanted)
        batches = [relabel(batch, wanted) for batch in named.to_batches()]
        return pa.Table.from_batches(batches, wanted)


def file_schema(
    columns: Sequence[StructField],
    *,
    mode: MappingMode,
    extras: Sequence[tuple[str, str]] = (),
) -> FileSchema:
    """Return what files hold of `columns`; `extras` are (name in batches, name in files) of longs.

    Columns are optional whatever the table says, as Spark writes them; void ones are left out.
    """
    written = tuple(column for column in columns if not is_void(column.type))
    fields = [_file_field(column, mode) for column in written]
    fields += [pa.field(name, pa.int64()) for _, name in extras]
    return FileSchema(columns=written, extras=tuple(extras), arrow=pa.schema(fields))


def _file_field(column: StructField, mode: MappingMode) -> pa.Field:
    identifier = field_id(column) if mode is not MappingMode.NONE else None
    metadata = None if identifier is None else {_FIELD_ID: str(identifier).encode()}
    name = physical_name(column, mode=mode)
    return pa.field(name, _file_type(column.type, mode), metadata=metadata)


def _file_type(kind: DeltaType, mode: MappingMode) -> pa.DataType:
    if isinstance(kind, StructType):
        members = [member for member in kind.fields if not is_void(member.type)]
        return pa.struct([_file_field(member, mode) for member in members])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _inner_type(kind.element, mode)))
    if isinstance(kind, MapType):
        key = pa.field("key", _inner_type(kind.key, mode), nullable=False)
        return pa.map_(key, pa.field("value", _inner_type(kind.value, mode)))
    return _VARIANT if kind.name == "variant" else arrow_type(kind)


def _inner_type(kind: DeltaType, mode: MappingMode) -> pa.DataType:
    if is_void(kind):
        message = "files cannot hold a list or map of a void type"
        raise RefusedError(message, operation="rewrite", feature="void")
    return _file_type(kind, mode)


def _drop_void(column: pa.ChunkedArray, kind: DeltaType) -> pa.ChunkedArray:
    """Return `column` without void members, and with no null inside a variant."""
    if not _needs_rebuilding(kind) or not column.num_chunks:
        return column
    return pa.chunked_array([_without_void(chunk, kind) for chunk in column.chunks])


def _without_void(array: pa.Array, kind: DeltaType) -> pa.Array:
    if isinstance(kind, PrimitiveType) and kind.name == "variant":
        parts = [pc.fill_null(array.field(name), b"") for name in ("metadata", "value")]
        return pa.StructArray.from_arrays(parts, fields=list(_VARIANT), mask=array.is_null())
    if not isinstance(kind, StructType) or not _needs_rebuilding(kind):
        return array
    members = [member for member in kind.fields if not is_void(member.type)]
    children = [_without_void(array.field(member.name), member.type) for member in members]
    names = [member.name for member in members]
    return pa.StructArray.from_arrays(children, names, mask=array.is_null())


def _needs_rebuilding(kind: DeltaType) -> bool:
    if isinstance(kind, StructType):
        return any(_needs_rebuilding(member.type) for member in kind.fields)
    return is_void(kind) or (isinstance(kind, PrimitiveType) and kind.name == "variant")


def _coded_schema(schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Return `schema` with dictionaries for string columns that are dictionaries in `found`."""
    for position, kind in enumerate(found.types):
        want = schema.field(position)
        if pat.is_dictionary(kind) and kind.value_type == want.type and pat.is_string(want.type):
            schema = schema.set(position, want.with_type(kind))
    return schema


_PARALLEL_READS = 16


def hold_dropped_columns(context: WriteContext, paths: Sequence[str]) -> pa.BooleanArray:
    """Say of each file whether it stores a column, or a part of one, that no reader asks for."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = list(pool.map(lambda path: _holds_more(context, path), paths))
    return pa.array(found, pa.bool_())


def _holds_more(context: WriteContext, path: str) -> bool:
    """Compare what a file stores with what is read of it; a file that cannot be read may."""
    try:
        file = open_file(context.store, path)
        if not file.rows:
            return False
        stored = file_columns(file.schema)
        wanted = project_rows(context.schema.fields, stored, context.mode).leaves
    except LakehandError:
        return True
    identity = RowIdentity.of({}, context.configuration, stored).leaves
    everything = {leaf for column in stored for leaf in column.leaves}
    return not everything <= {*wanted, *identity}


def partition_keys(
    raw_values: Sequence[pa.ChunkedArray], count: int, *, cubes: pa.ChunkedArray | None = None
) -> pa.Array:
    """Give each of `count` files the number of its partition, by the raw values of each column.

    Raw, because a value that is spelled in two ways must keep both spellings. `cubes` are the tags
    of files that were clustered together: these stay apart from others, as one file of both would
    not be clustered.
    """
    orders = [] if cubes is None else [pc.map_lookup(cubes, CUBE_ID, "first")]
    keys = np.zeros(count, np.int32)
    for values in (*raw_values, *orders):
        encoded = pc.dictionary_encode(values).combine_chunks()
        # Null is a separate value.
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        # Two numbers of 32 bits fit into one of 64.
        keys = keys * np.int64(len(encoded.dictionary) + 1) + codes + 1
        keys = pc.dictionary_encode(pa.array(keys)).indices.to_numpy()
    return pa.array(keys)


def staged_difference(
    context: WriteContext, inputs: Sequence[DataFile], outputs: Sequence[StagedFile]
) -> str | None:
    """Return what readers find in `outputs` otherwise than in `inputs`, whatever the rows are."""
    if not outputs:
        return None
    facts = context.footers.of(context.store, inputs)
    wanted = _text(RecodedCalendar.of(facts).key_values)
    written = read_many_facts((context.store, file.path) for file in outputs)
    for file, found in zip(outputs, written, strict=True):
        if not _has_its_tail(context.store, file):
            return f"{file.path} has other indexes, or another footer, than were written"
        if _text(found.key_values) != wanted:
            return f"{file.path} marks its calendar by {_text(found.key_values)}, not by {wanted}"
        if not _has_ids(context, context.store, file):
            return f"{file.path} lacks names or ids of columns that it was written with"
    return None


def _has_its_tail(store: Store, file: StagedFile) -> bool:
    if file.tail is None:
        return True
    start, wanted = file.tail
    crc = 0
    for block in read_blocks(store, file.path, [(start, file.bytes - start)]):
        crc = crc32(block, crc)
    return crc == wanted


def _text(key_values: Mapping[str, str | None]) -> str:
    pairs = (f"{key}={key_values[key]}" for key in MARKER_KEYS if key in key_values)
    return ", ".join(pairs) or "nothing"


def _has_ids(context: WriteContext, store: Store, file: StagedFile) -> bool:
    wanted = file_columns(file_schema(context.data_fields(), mode=context.mode).arrow)
    found = file_columns(open_file(store, file.path, bytes_hint=file.bytes).schema)
    # Behind the columns of the table lie those that tell which row is which.
    return [_names(column) for column in wanted] == [
        _names(column) for column in found[: len(wanted)]
    ]


def _names(column: FileColumn) -> tuple[object, ...]:
    return (column.name, column.field_id, *(_names(part) for part in column.parts))
