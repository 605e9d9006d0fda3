"""What the rows of new files do not show: how their footers have readers take them.

Two files with equal rows may be read differently: by Spark if they lack its mark of a calendar, by
engines that go by field ids if they lack those, by whoever passes over pages if an index is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.formats.delta.files.file_schema import file_schema
from lakehand.parquet.blocks import read_blocks
from lakehand.parquet.calendar import MARKER_KEYS
from lakehand.parquet.columns import file_columns
from lakehand.parquet.crc import crc32
from lakehand.parquet.facts import read_many_facts
from lakehand.parquet.reading import open_file
from lakehand.parquet.recoded_calendar import RecodedCalendar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.model.work import DataFile, StagedFile
    from lakehand.parquet.columns import FileColumn
    from lakehand.storage import Store

__all__ = ["staged_difference"]


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
