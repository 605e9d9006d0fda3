"""The rows of files, decoded and held against what the table says of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakehand.errors import CorruptFileError, ObjectNotFoundError, SchemaMismatchError
from lakehand.formats.delta.files.file_schema import file_schema
from lakehand.formats.delta.files.statistics import StatisticsCollector
from lakehand.formats.delta.files.statistics_rules import statistics_rules
from lakehand.formats.delta.upkeep.findings import finding
from lakehand.formats.delta.upkeep.stated_statistics import contradictions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.formats.delta.files.statistics_rules import StatisticsRules
    from lakehand.model.verification import Finding
    from lakehand.model.work import DataFile

    #: Returns the visible rows of a file, with all columns.
    ReadRows = Callable[[DataFile], pa.RecordBatchReader]

__all__ = ["RowChecker"]

_ALL_COLUMNS = {"delta.dataSkippingNumIndexedCols": "-1"}
_UNREADABLE = (CorruptFileError, SchemaMismatchError, ObjectNotFoundError)
#: Named in a message; the others are as wrong.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RowChecker:
    """Decodes one file after the other."""

    context: WriteContext
    read: ReadRows
    _stack: ExitStack = field(default_factory=ExitStack)
    _known: list[StatisticsCollector] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, file: DataFile) -> Iterator[Finding]:
        """Yield what is wrong with the visible rows of `file`."""
        visible = None if file.rows is None else file.rows - file.deleted_rows
        try:
            count = self._decode(file)
        except _UNREADABLE as error:
            yield finding("unreadable_rows", error.message, path=file.path, rows=visible)
            return
        if visible is not None and count != visible:
            message = f"{file.path} shows {count:,} rows where the table says {visible:,}"
            yield finding("wrong_row_count", message, path=file.path, expected=visible, found=count)
        wrong = self._wrong_statistics(file)
        if wrong:
            yield finding(
                "wrong_statistics",
                f"the statistics of {file.path} are wrong: {'; '.join(wrong[:_NAMED])}",
                path=file.path,
                found="; ".join(wrong),
            )

    def _decode(self, file: DataFile) -> int:
        schema = file_schema(self.context.data_fields(), mode=self.context.mode)
        collector = self._collector()
        collector.forget()
        count = 0
        for batch in self.read(file):
            count += batch.num_rows
            if len(schema.arrow):
                collector.add(schema.to_file(pa.Table.from_batches([batch])))
        if not count and len(schema.arrow):
            collector.add(schema.arrow.empty_table())
        return count

    def _wrong_statistics(self, file: DataFile) -> Sequence[str]:
        leaves = self._rules().leaves
        if not leaves:
            return ()
        _, facts = self._collector().facts()
        text = file.native["add"].get("stats")
        return contradictions(text, leaves, facts, hides_rows=bool(file.deleted_rows))

    def _collector(self) -> StatisticsCollector:
        """Return the collector, which is opened once: that costs more than a small file."""
        if not self._known:
            made = StatisticsCollector(self._rules())
            self._known.append(self._stack.enter_context(made))
        return self._known[0]

    def _rules(self) -> StatisticsRules:
        """Return rules for all columns: the table may have wanted others once."""
        return statistics_rules(
            self.context.schema,
            _ALL_COLUMNS,
            mode=self.context.mode,
            partition_columns=self.context.partition_columns,
        )
