"""The statistics of live files, computed anew from their rows."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.files.file_schema import file_schema
from lakehand.formats.delta.files.statistics import StatisticsCollector
from lakehand.formats.delta.protocol.members import load_json
from lakehand.model.work import Refreshed
from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.facts import read_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.model.work import DataFile
    from lakehand.parquet.facts import FileFacts

    #: Returns the visible rows of a file, with the columns that are named.
    ReadColumns = Callable[[DataFile, list[str]], pa.RecordBatchReader]

__all__ = ["Refresher"]


@dataclass(frozen=True, slots=True)
class Refresher:
    """Computes the statistics of one file after the other."""

    context: WriteContext
    read: ReadColumns
    _collectors: dict[bool, StatisticsCollector] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def refresh(self, file: DataFile) -> Refreshed:
        """Compute `add.stats` of `file` as a writer of its visible rows would have it.

        Bounds and null counts are those of the rows that are not deleted, so they are tight; the
        number of rows is that of the file.
        """
        facts = read_facts(*self.context.store.resolve(file.path))
        _check_row_count(file, facts)
        visible_rows = facts.rows - file.deleted_rows
        collector = self._collector(is_legacy=_is_legacy(facts))
        for rows in self._rows(file, count=visible_rows):
            collector.add(rows)
        text = collector.finish(stored_rows=facts.rows)
        is_known = _says_the_same(file.native["add"].get("stats"), text)
        return Refreshed(file=file, native={"stats": text}, rows=visible_rows, is_known=is_known)

    def _collector(self, *, is_legacy: bool) -> StatisticsCollector:
        """Return a collector that has seen nothing; to open one costs more than a small file."""
        if is_legacy not in self._collectors:
            made = StatisticsCollector(self.context.statistics_rules(), is_legacy=is_legacy)
            self._collectors[is_legacy] = self._stack.enter_context(made)
        self._collectors[is_legacy].forget()
        return self._collectors[is_legacy]

    def _rows(self, file: DataFile, *, count: int) -> Iterator[pa.Table]:
        named = {leaf.path[0] for leaf in self.context.statistics_rules().leaves}
        columns = [column for column in self.context.data_fields() if column.name in named]
        if not columns:
            # The table wants no more than the number of rows.
            yield pa.table({"rows": pa.nulls(count)})
            return
        schema = file_schema(columns, mode=self.context.mode)
        if not count:
            yield schema.arrow.empty_table()
            return
        for batch in self.read(file, [column.name for column in columns]):
            yield schema.to_file(pa.Table.from_batches([batch]))


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
    return load_json(text, parse_float=Decimal, parse_int=Decimal)
