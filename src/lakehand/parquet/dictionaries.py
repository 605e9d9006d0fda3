"""Dictionary encoding: which columns benefit, and strings that stay dictionary-encoded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    chunks,
    dictionary_offset,
    field,
    read_local_footer,
)
from lakehand.parquet.leaves import leaves as leaves_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakehand.parquet.thrift import Struct

#: The encoder falls back to plain encoding if a dictionary grows beyond this.
DICTIONARY_BYTES = 2**20
_SAMPLE_ROWS = 4096
#: With this few values, dictionary indexes are always faster to read.
_FEW_VALUES = 255
_BITS_PER_BYTE = 8
_TEXT = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}


def columns_without_dictionary(rows: pa.Table, codec: str) -> frozenset[str]:
    """Return flat columns whose row group is not larger without a dictionary."""
    flat = [field.name for field in rows.schema if _can_be_sampled(field.type)]
    if not flat or not rows.num_rows:
        return frozenset()
    sample = rows.select(flat).take(_evenly(rows.num_rows)).combine_chunks()
    present = {name: _present(sample[name]) for name in flat}
    return frozenset(
        name
        for name, values in present.items()
        if len(values)
        and not _pays(values, rows=rows.num_rows * len(values) / len(sample), codec=codec)
    )


def _can_be_sampled(kind: pa.DataType) -> bool:
    is_number = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return is_number or pa.types.is_decimal(kind) or kind in _TEXT


def _evenly(rows: int) -> pa.Array:
    """Return row numbers spread evenly, so that repeated values in runs count once."""
    count = min(rows, _SAMPLE_ROWS)
    return pa.array(np.linspace(0, rows - 1, count, dtype=np.int64))


def _present(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.drop_null().chunks) if len(column) > column.null_count else []


def _pays(values: pa.Array, *, rows: float, codec: str) -> bool:
    """Estimate, from a sample, whether `rows` rows are smaller with a dictionary."""
    found = pc.count_distinct(values).as_py()
    if found <= min(_FEW_VALUES, len(values) / 2):
        return True
    distinct = _distinct_among(rows, sampled=len(values), found=found)
    if distinct * values.nbytes / len(values) > DICTIONARY_BYTES:
        return False
    value_bytes = _stored_bytes(values, codec) / len(values)
    numbers = rows * math.ceil(math.log2(max(2.0, distinct))) / _BITS_PER_BYTE
    return distinct * value_bytes + numbers < rows * value_bytes


def _distinct_among(rows: float, *, sampled: int, found: int) -> float:
    """Estimate how many distinct values `rows` rows have, if all are about equally frequent."""
    repeats = sampled - found
    if not repeats:
        return rows
    population = sampled**2 / (2 * repeats) if repeats < sampled / 2 else found
    return min(rows, population * -math.expm1(-rows / population))


def _stored_bytes(values: pa.Array, codec: str) -> int:
    """Return the compressed size of the values in plain encoding."""
    buffers = [buffer for buffer in values.buffers()[1:] if buffer is not None]
    if codec == "none":
        return sum(buffer.size for buffer in buffers)
    compress = pa.Codec(codec).compress
    return sum(len(compress(buffer)) for buffer in buffers)


#: DuckDB looks a string up by comparing it with one after the other.
_MAX_STRINGS = 32
#: A larger dictionary page has more strings, or longer ones.
_MAX_PAGE_BYTES = 2048
#: Longer ones might be too long for the statistics of a footer.
_MAX_STRING_BYTES = 1024


def dictionary_strings(paths: Sequence[Path], leaves: Mapping[int, int]) -> dict[int, pa.Array]:
    """Return the distinct strings of low-cardinality columns over local files of one schema.

    `leaves` maps any keys to the leaf indexes of the columns.
    """
    sampled = dict.fromkeys((paths[0], paths[len(paths) // 2], paths[-1])) if leaves else {}
    samples = [_strings_of(path, leaves) for path in sampled]
    joined = {
        key: pc.unique(pa.concat_arrays([sample[key] for sample in samples]))
        for key in leaves
        if all(key in sample for sample in samples)
    }
    return {key: strings for key, strings in joined.items() if len(strings) <= _MAX_STRINGS}


def _strings_of(path: Path, leaves: Mapping[int, int]) -> dict[int, pa.Array]:
    """Return the distinct strings of low-cardinality columns in the first row group of a file."""
    footer = read_local_footer(path)
    columns = chunks(footer.row_groups[0]) if footer.row_groups else []
    names = [".".join(leaf.path) for leaf in leaves_of(footer.schema)]
    small = {
        key: names[leaf]
        for key, leaf in leaves.items()
        if columns and _has_small_dictionary(columns[leaf])
    }
    if not small:
        return {}
    try:
        with pq.ParquetFile(path, read_dictionary=list(small.values())) as file:
            rows = file.read_row_group(0, columns=list(small.values()))
    except (pa.ArrowException, OSError):
        # The error is raised when the rows are read.
        return {}
    found = {key: rows.column(name) for key, name in small.items()}
    return {
        key: column.chunk(0).dictionary
        for key, column in found.items()
        if column.num_chunks == 1 and _are_few(column.chunk(0))
    }


def _has_small_dictionary(chunk: Struct) -> bool:
    column = field(chunk, ChunkField.METADATA, {})
    offset = dictionary_offset(column) if column else None
    if offset is None:
        return False
    return int(field(column, ColumnField.DATA_PAGE)) - offset <= _MAX_PAGE_BYTES


def _are_few(column: pa.Array) -> bool:
    if not pat.is_dictionary(column.type) or not 0 < len(column.dictionary) <= _MAX_STRINGS:
        return False
    longest: int | None = pc.max(pc.binary_length(column.dictionary)).as_py()
    return longest is not None and longest <= _MAX_STRING_BYTES


class DictionaryDecoder:
    """Rebuilds dictionary columns from the indexes of their strings."""

    def __init__(self, strings: Mapping[int, pa.Array], schema: pa.Schema) -> None:
        """`strings` are the strings of flat columns, by their positions in `schema`."""
        self._strings = strings
        self._schema = schema
        #: By which columns are dictionaries: creating a schema costs as much as all else here.
        self._schemas: dict[tuple[int, ...], pa.Schema] = {}

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `batch`.

        After all columns, it has one per low-cardinality column with the strings that have no
        index.
        """
        columns, width, complete = batch.columns, len(self._schema), []
        for others, (position, values) in zip(columns[width:], self._strings.items(), strict=True):
            coded = pa.DictionaryArray.from_arrays(columns[position], values, safe=False)
            if others.null_count == len(others):
                columns[position] = coded
                complete.append(position)
            else:
                columns[position] = pc.coalesce(coded.cast(others.type), others)
        schema = self._schema_with(tuple(complete), columns)
        return pa.RecordBatch.from_arrays(columns[:width], schema=schema)

    def _schema_with(self, coded: tuple[int, ...], columns: Sequence[pa.Array]) -> pa.Schema:
        if coded not in self._schemas:
            schema = self._schema
            for position in coded:
                field = schema.field(position).with_type(columns[position].type)
                schema = schema.set(position, field)
            self._schemas[coded] = schema
        return self._schemas[coded]


def unify_dictionaries(rows: pa.Table) -> pa.Table:
    """Return the rows of a row group with one dictionary per column, without unused strings.

    Arrow falls back to plain encoding at the second dictionary, so strings are decoded then. If
    there are nulls, Arrow may use an unused string as a bound.
    """
    for position, member in enumerate(rows.schema):
        if pat.is_dictionary(member.type):
            column = _in_use(rows.column(position))
            rows = rows.set_column(position, member.with_type(column.type), column)
    return rows


def without_dictionaries(rows: pa.Table) -> pa.Table:
    """Return `rows` with plain strings in all columns."""
    for position, member in enumerate(rows.schema):
        if pat.is_dictionary(member.type):
            column = rows.column(position).cast(member.type.value_type)
            rows = rows.set_column(position, member.with_type(column.type), column)
    return rows


def _in_use(column: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = pa.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type)
    used = pc.unique(numbers).drop_null()
    if not len(used) or not _has_one_dictionary(column):
        return column.cast(column.type.value_type)
    strings = column.chunk(0).dictionary
    if len(used) == len(strings):
        return column
    used = used.sort()
    positions = np.zeros(len(strings), np.uint8)
    positions[used.to_numpy()] = np.arange(len(used))
    kept, renumbered = strings.take(used), pa.array(positions)
    chunks = [renumbered.take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, kept) for chunk in chunks])


def _has_one_dictionary(column: pa.ChunkedArray) -> bool:
    strings = column.chunk(0).dictionary
    return all(chunk.dictionary.equals(strings) for chunk in column.chunks)
