"""The statistics of live files, computed anew from their rows."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.files.file_schema import file_schema
from lakehand.formats.delta.files.known_facts import read_committed_facts
from lakehand.formats.delta.files.statistics import StatisticsCollector
from lakehand.formats.delta.protocol.members import load_json
from lakehand.formats.delta.upkeep.stated_statistics import contradictions
from lakehand.model.work import Refreshed
from lakehand.parquet.calendar import calendar_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.formats.delta.files.statistics import LeafFacts
    from lakehand.model.work import DataFile
    from lakehand.parquet.facts import FileFacts

    #: Returns the visible rows of a file, with the columns that are named.
    ReadColumns = Callable[[DataFile, list[str]], pa.RecordBatchReader]

__all__ = ["Refresher"]

#: Contradictions named in a message; the others are as wrong.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Refresher:
    """Computes the statistics of one file after the other."""

    context: WriteContext
    read: ReadColumns
    #: Whether rows that contradict the statistics of their file are taken for right.
    accept_changes: bool = False
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
        facts = read_committed_facts(self.context.store, file)
        visible_rows = facts.rows - file.deleted_rows
        collector = self._collector(is_legacy=_is_legacy(facts))
        for rows in self._rows(file, count=visible_rows):
            collector.add(rows)
        _, found = collector.facts()
        if not self.accept_changes:
            self._require_agreement(file, found)
        text = collector.text(found, rows=facts.rows)
        is_known = _says_the_same(file.native["add"].get("stats"), text)
        return Refreshed(file=file, native={"stats": text}, rows=visible_rows, is_known=is_known)

    def _require_agreement(
        self, file: DataFile, found: Mapping[tuple[str, ...], LeafFacts]
    ) -> None:
        """Refuse a file whose rows contradict its statistics: it may be another file by now."""
        leaves = self.context.statistics_rules().leaves
        text, deleted = file.native["add"].get("stats"), bool(file.deleted_rows)
        wrong = contradictions(text, leaves, found, hides_rows=deleted)
        if wrong:
            raise CorruptFileError(
                f"the rows of {file.path} contradict its statistics: {'; '.join(wrong[:_NAMED])}",
                path=file.path,
                hint="the file may have been replaced: compare it with a backup; `lakehand repair"
                " --deep --accept-changed-files` takes it as it is",
            )

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
