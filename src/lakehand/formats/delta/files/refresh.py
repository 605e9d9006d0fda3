"""The statistics of a live file, computed anew from its rows."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.files.file_schema import file_schema
from lakehand.formats.delta.files.statistics import StatisticsCollector
from lakehand.model.work import Refreshed
from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.formats.delta.files.writer import WriteContext
    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.model.work import DataFile
    from lakehand.parquet.facts import FileFacts

__all__ = ["refresh_statistics"]


def refresh_statistics(
    context: WriteContext,
    file: DataFile,
    read: Callable[[list[str]], pa.RecordBatchReader],
) -> Refreshed:
    """Compute `add.stats` of `file` as a writer of its visible rows would have it.

    Bounds and null counts are those of the rows that are not deleted, so they are tight; the number
    of rows is that of the file. `read` returns the visible rows with the columns that it is given.
    """
    facts = read_facts(*context.store.resolve(file.path))
    _check_row_count(file, facts)
    rules = context.statistics_rules()
    named = {leaf.path[0] for leaf in rules.leaves}
    fields = [column for column in context.data_fields() if column.name in named]
    visible_rows = facts.rows - file.deleted_rows
    with StatisticsCollector(rules, is_legacy=_is_legacy(facts)) as collector:
        for rows in _rows(context, fields, read, count=visible_rows):
            collector.add(rows)
        text = collector.finish(stored_rows=facts.rows)
    is_known = _says_the_same(file.native["add"].get("stats"), text)
    return Refreshed(file=file, native={"stats": text}, rows=visible_rows, is_known=is_known)


def _rows(
    context: WriteContext,
    fields: list[StructField],
    read: Callable[[list[str]], pa.RecordBatchReader],
    *,
    count: int,
) -> Iterator[pa.Table]:
    if not fields:
        # The table wants no more than the number of rows.
        yield pa.table({"rows": pa.nulls(count)})
        return
    schema = file_schema(fields, mode=context.mode)
    yield schema.arrow.empty_table()
    for batch in read([column.name for column in fields]):
        yield pa.Table.from_batches([schema.to_file(batch)])


def _check_row_count(file: DataFile, facts: FileFacts) -> None:
    if file.rows is not None and file.rows != facts.rows:
        raise CorruptFileError(
            f"{file.path} holds {facts.rows} rows, and the table says {file.rows}",
            path=file.path,
            hint="the file was changed since it was committed; verify the table",
        )


def _is_legacy(facts: FileFacts) -> bool:
    calendar = calendar_class(facts.key_values)
    return calendar.datetime == "legacy" or (facts.has_int96 and calendar.int96 == "legacy")


def _says_the_same(text: str | None, other: str) -> bool:
    """Say whether two statistics differ by nothing but the spelling of the JSON."""
    try:
        return bool(_parsed(text or "") == _parsed(other))
    except ValueError:
        return False


def _parsed(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)
