"""Decides whether row groups of several files may be copied into one file.

Files of one `CopyClass` may be copied together: their pages have the same meaning with one footer.
A file with a `refusal` is never copied; it is re-encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.parquet.calendar import (
    MARKER_KEYS,
    VERSION_KEY,
    CalendarClass,
    calendar_class,
    may_contain_old_dates,
)
from lakehand.parquet.footer import (
    ChunkField,
    ColumnField,
    FileField,
    Footer,
    RowGroupField,
    chunk_range,
    chunks,
    field,
    parse_footer,
    split_footer,
)
from lakehand.parquet.leaves import INT96, Leaf, is_known, leaves
from lakehand.parquet.thrift import Struct, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


_WRITER = re.compile(r"(?P<name>.*?)\s+version\s+(?P<version>[^\s(]+)", re.DOTALL)
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
#: Older versions of these writers have bugs that readers work around by the writer's name.
_OLDEST_TRUSTED = {"parquet-mr": (1, 10), "parquet-cpp": (3, 0), "parquet-cpp-arrow": (3, 0)}
_LAST_FIELD = {"file": 9, "row group": 7, "chunk": 9, "column": 17}
_VENDOR_FIELD = 32767
#: Codec numbers of parquet.thrift.
CODECS = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")

_ORIGINAL_CREATED_BY = "original.created.by"
#: Keys that describe one file or one job, and are wrong for any other.
_DROPPED_KEYS = ("geo", _ORIGINAL_CREATED_BY)
_DROPPED_PREFIX = "com.databricks.spark."
_SPARK_WITHOUT_REBASE = "3.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyClass:
    """What two files must have in common to be copied into one."""

    leaves: tuple[tuple[Any, ...], ...]
    field_ids: tuple[tuple[int | None, ...], ...]
    column_orders: bytes | None
    codec: str
    #: None if no value can depend on the calendar.
    calendar: CalendarClass | None
    #: Whether INT96 values are read as parquet-mr's; None if there are none.
    int96_of_parquet_mr: bool | None


def refusal(footer: Footer) -> str | None:
    """Return why the row groups of a file must not be copied, or None."""
    writer_fault = _writer_fault(footer.created_by)
    if writer_fault:
        return writer_fault
    if FileField.ENCRYPTION in footer.meta or FileField.SIGNING_KEY in footer.meta:
        return "the file is encrypted or signed"
    if not footer.rows:
        return "the file has no rows"
    if not is_known(footer.schema):
        return "the schema has an unknown logical type"
    unknown = next(_unknown_fields(footer), None)
    if unknown is not None:
        return f"the footer has an unknown field: {unknown}"
    return next(_chunk_faults(footer), None)


def copy_class(footer: Footer) -> CopyClass:
    """Return the class of a file without a refusal."""
    columns = leaves(footer.schema)
    has_int96 = any(leaf.physical_type == INT96 for leaf in columns)
    orders = footer.meta.get(FileField.COLUMN_ORDERS)
    return CopyClass(
        leaves=tuple(leaf.pages_mean for leaf in columns),
        field_ids=tuple(leaf.ids for leaf in columns),
        column_orders=None if orders is None else encode({FileField.COLUMN_ORDERS: orders}),
        codec="+".join(sorted(_codecs(footer))),
        calendar=_relevant_calendar(footer, columns),
        int96_of_parquet_mr=_is_parquet_mr(footer) if has_int96 else None,
    )


def empty_file_footer(schema: pa.Schema) -> Footer:
    """Return the footer of a file that Arrow would write, to compare others with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # Options that decide how leaves are stored; the rest is as in the writer of the table's files.
    pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        store_decimal_as_integer=True,
        use_compliant_nested_type=True,
        store_schema=False,
    ).close()
    data = sink.getvalue().to_pybytes()
    return parse_footer(split_footer(data), path="", file_bytes=len(data))


def merged_created_by(footers: Sequence[Footer], *, writer: str) -> str:
    """Return `created_by` for a file with row groups of `footers`.

    Readers choose workarounds by it, so a file with row groups of parquet-mr says that it is
    compatible, without claiming a version of parquet-mr.
    """
    return f"parquet-mr compatible {writer}" if all(map(_is_parquet_mr, footers)) else writer


def merged_key_values(footers: Sequence[Footer]) -> dict[str, str]:
    """Return the key-value metadata that is true of all row groups of `footers`."""
    first, *others = [footer.key_values for footer in footers]
    merged = {
        key: value
        for key, value in first.items()
        if value is not None
        and all(other.get(key) == value for other in others)
        and key not in (*_DROPPED_KEYS, *MARKER_KEYS)
        and not key.startswith(_DROPPED_PREFIX)
    }
    writers = {footer.created_by or "" for footer in footers}
    return merged | _markers(footers) | {_ORIGINAL_CREATED_BY: "\n".join(sorted(writers))}


def _markers(footers: Sequence[Footer]) -> dict[str, str]:
    """Return the calendar markers for the new file; the footers are of one class."""
    if _relevant_calendar(footers[0], leaves(footers[0].schema)) is not None:
        pairs = footers[0].key_values
        return {key: pairs[key] or "" for key in MARKER_KEYS if key in pairs}
    versions = [footer.key_values.get(VERSION_KEY) for footer in footers]
    newest = max((version for version in versions if version), default="")
    return {VERSION_KEY: newest} if newest >= _SPARK_WITHOUT_REBASE else {}


def _relevant_calendar(footer: Footer, columns: list[Leaf]) -> CalendarClass | None:
    if not may_contain_old_dates(footer, columns):
        return None
    return calendar_class(footer.key_values)


def _is_parquet_mr(footer: Footer) -> bool:
    return (footer.created_by or "").startswith("parquet-mr")


def _codecs(footer: Footer) -> set[str]:
    numbers = {
        field(field(chunk, ChunkField.METADATA), ColumnField.CODEC)
        for row_group in footer.row_groups
        for chunk in chunks(row_group)
    }
    return {CODECS[number] for number in numbers}


def _writer_fault(created_by: str | None) -> str | None:
    match = _WRITER.match(created_by or "")
    if match is None:
        return f"the writer of the file is unknown ({created_by!r})"
    oldest = _OLDEST_TRUSTED.get(match["name"])
    numbers = _NUMBERS.match(match["version"])
    if oldest is None or (numbers and (int(numbers[1]), int(numbers[2])) >= oldest):
        return None
    return f"files of {match['name']} before {oldest[0]}.{oldest[1]} need workarounds"


def _unknown_fields(footer: Footer) -> Iterator[str]:
    yield from _beyond("file", footer.meta)
    for row_group in footer.row_groups:
        yield from _beyond("row group", row_group)
        for chunk in chunks(row_group):
            yield from _beyond("chunk", chunk)
            yield from _beyond("column", field(chunk, ChunkField.METADATA, {}))


def _beyond(kind: str, struct: Struct) -> Iterator[str]:
    for field_id in struct:
        if field_id > _LAST_FIELD[kind] and field_id != _VENDOR_FIELD:
            yield f"{kind} field {field_id}"


def _chunk_faults(footer: Footer) -> Iterator[str]:
    for row_group in footer.row_groups:
        if field(row_group, RowGroupField.ROWS, 0) < 0:
            yield "a row group has a negative number of rows"
        for chunk in chunks(row_group):
            yield from _chunk_fault(chunk, footer.file_bytes)


def _chunk_fault(chunk: Struct, file_bytes: int) -> Iterator[str]:
    if ChunkField.FILE_PATH in chunk:
        yield "a column chunk is in another file"
    if ChunkField.CRYPTO in chunk or ChunkField.ENCRYPTED_METADATA in chunk:
        yield "a column chunk is encrypted"
    if ChunkField.METADATA not in chunk:
        yield "a column chunk has no metadata"
        return
    start, length = chunk_range(chunk)
    if start < len(b"PAR1") or length < 0 or start + length > file_bytes:
        yield "a column chunk is outside the file"
    if field(field(chunk, ChunkField.METADATA), ColumnField.CODEC, -1) not in range(len(CODECS)):
        yield "a column chunk has an unknown codec"
