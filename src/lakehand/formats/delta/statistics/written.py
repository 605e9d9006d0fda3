"""Statistics of new files, and of live files: which lack them, and new ones from their rows."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import CorruptFileError
from lakehand.expressions.literals import quote_identifier, quote_string
from lakehand.formats.delta.log.log_source import open_log_source
from lakehand.formats.delta.log.replay import ROW_COUNT, live_relation
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.statistics.compute import (
    LeafFacts,
    StatisticsCollector,
    contradictions,
    statistics_text,
)
from lakehand.formats.delta.statistics.merge import MAX, MIN, NULLS, StatisticsRules, has_bounds
from lakehand.formats.delta.write.context import WriteContext, read_committed_facts
from lakehand.formats.delta.write.file_schema import file_schema
from lakehand.model.work import DataFile, Refreshed
from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.columns import FileColumn, file_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.formats.delta.protocol.schema import Leaf
    from lakehand.parquet.footer_facts import FileFacts
    from lakehand.storage import Store

#: Arrow leaves bounds out of a footer that are longer.
_MAX_BOUND_BYTES = 4096
_EXACT = Context(prec=80)


class WrittenStatistics:
    """Sees the row groups of one file go by, and tells its statistics when it is written."""

    def __init__(
        self, rules: StatisticsRules, schema: pa.Schema, *, is_legacy: bool = False
    ) -> None:
        """`is_legacy`: see `statistics_text`."""
        self._rules = rules
        self._is_legacy = is_legacy
        columns = file_columns(schema)
        self._leaves = [_WatchedLeaf.of(leaf, columns) for leaf in rules.leaves]

    def watch(self, rows: pa.Table) -> None:
        """Look for what the footer will not tell of the next row group."""
        for leaf in self._leaves:
            leaf.watch(rows)

    def finish(self, row_groups: Sequence[pq.RowGroupMetaData]) -> str:
        """Return the text of `add.stats` for a file of these row groups."""
        rows = sum(group.num_rows for group in row_groups)
        facts = {leaf.path: leaf.facts(row_groups) for leaf in self._leaves}
        return statistics_text(self._rules, facts, rows=rows, is_legacy=self._is_legacy)


class _WatchedLeaf:
    """One leaf of a file that is being written."""

    def __init__(self, leaf: Leaf, place: Sequence[int], column: FileColumn) -> None:
        self.path = leaf.physical_path
        self._place = place
        self._type = column.type
        #: None where the nulls of what is stored are not those of the leaf.
        self._stored = None if column.parts else column.leaves[0]
        self._has_bounds = has_bounds(leaf.type)
        self._has_nan = False
        self._nulls = 0
        #: Bounds of row groups whose footers will have none, by the number of the row group.
        self._long: dict[int, tuple[bytes, bytes]] = {}
        self._groups = 0

    @classmethod
    def of(cls, leaf: Leaf, columns: Sequence[FileColumn]) -> _WatchedLeaf:
        place = []
        for name in leaf.physical_path:
            position = [column.name for column in columns].index(name)
            place.append(position)
            found, columns = columns[position], columns[position].parts
        return cls(leaf, place, found)

    def watch(self, rows: pa.Table) -> None:
        number, self._groups = self._groups, self._groups + 1
        if self._stored is None:
            self._nulls += self._values(rows).null_count
        elif self._has_bounds and pat.is_floating(self._type):
            self._has_nan = self._has_nan or bool(pc.any(pc.is_nan(self._values(rows))).as_py())
        elif self._has_bounds and pat.is_string(self._type):
            texts = self._values(rows)
            if pat.is_dictionary(texts.type):
                # Only short strings come as dictionaries.
                return
            if (pc.max(pc.binary_length(texts)).as_py() or 0) > _MAX_BOUND_BYTES:
                self._long[number] = _text_bounds(texts)

    def facts(self, row_groups: Sequence[pq.RowGroupMetaData]) -> LeafFacts:
        if self._stored is None:
            return LeafFacts(nulls=self._nulls)
        found = [group.column(self._stored).statistics for group in row_groups]
        nulls = sum(statistics.null_count for statistics in found)
        if not self._has_bounds:
            return LeafFacts(nulls=nulls)
        ends = [self._ends(number, s) for number, s in enumerate(found) if s.num_values]
        known = [end for end in ends if end is not None]
        # A row group of nothing but NaN has no bounds, and lowers none.
        if not known or (len(known) < len(ends) and not self._has_nan):
            return LeafFacts(nulls=nulls)
        return LeafFacts(
            nulls=nulls,
            minimum=_scalar(min(low for low, _ in known), self._type),
            # Engines differ about where NaN is.
            maximum=None if self._has_nan else _scalar(max(high for _, high in known), self._type),
        )

    def _ends(self, number: int, statistics: pq.Statistics) -> tuple[Any, Any] | None:
        if statistics.has_min_max:
            low, high = statistics.min_raw, statistics.max_raw
            return (_unscaled(low), _unscaled(high)) if pat.is_decimal(self._type) else (low, high)
        return self._long.get(number)

    def _values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the values of the leaf; null where a struct around them is."""
        first, *rest = self._place
        column = rows.column(first)
        return pc.struct_field(column, rest) if rest else column


def _text_bounds(texts: pa.ChunkedArray) -> tuple[bytes, bytes]:
    found = pc.min_max(texts.cast(pa.binary()))
    return found["min"].as_py(), found["max"].as_py()


def _unscaled(raw: int | bytes) -> int:
    """Return the digits of a decimal, which are in bytes where they are many."""
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _scalar(raw: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a bound as it is stored as a value of its column."""
    if pat.is_string(type_):
        # Spark lets bytes into its strings that are none: they must not be decoded here.
        return pa.array([raw], pa.binary()).view(type_)[0]
    if pat.is_decimal(type_):
        return pa.scalar(Decimal(raw).scaleb(-type_.scale, _EXACT), type_)
    if pat.is_date(type_):
        return pa.scalar(raw, pa.int32()).cast(type_)
    return pa.scalar(raw, type_)


if TYPE_CHECKING:
    ReadColumns = Callable[[DataFile, list[str]], pa.RecordBatchReader]

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
                " --deep --accept-changed-files` accepts the current file",
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


_PARSED = "parsed_statistics"


def paths_lacking_statistics(store: Store, segment: LogSegment, rules: StatisticsRules) -> pa.Array:
    """Return the decoded paths of live files without a row count, a null count or any bound.

    One of two bounds is enough: a column with NaN has no upper one that all engines understand. A
    column without values has neither.
    """
    parsed = f"TRY(from_json({{stats}}, {quote_string(json.dumps(_structure(rules.leaves)))}))"
    with open_log_source(store, segment) as source:
        members = (ROW_COUNT, "deletionVector")
        live = live_relation(source, "add", members, derived={_PARSED: parsed})
        lacks = " OR ".join([f'"{ROW_COUNT}" IS NULL', *map(_lacks, rules.leaves)])
        found = source.stream(f"SELECT path_key AS path FROM {live} WHERE {lacks}").read_all()
    return found["path"].combine_chunks().cast(pa.string())


def _structure(leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Return the JSON structure of statistics; bounds are strings: only presence counts."""
    shape: dict[str, Any] = {NULLS: {}, MIN: {}, MAX: {}}
    for leaf in leaves:
        _put_type(shape, (NULLS, *leaf.physical_path), "BIGINT")
        if has_bounds(leaf.type):
            _put_type(shape, (MIN, *leaf.physical_path), "VARCHAR")
            _put_type(shape, (MAX, *leaf.physical_path), "VARCHAR")
    return {name: members for name, members in shape.items() if members}


def _put_type(shape: dict[str, Any], path: Sequence[str], type_: str) -> None:
    *parents, last = path
    for name in parents:
        shape = shape.setdefault(name, {})
    shape[last] = type_


def _lacks(leaf: Leaf) -> str:
    nulls = _member(NULLS, leaf)
    if not has_bounds(leaf.type):
        return f"{nulls} IS NULL"
    stored, deleted = f'"{ROW_COUNT}"', "coalesce(deletionVector.cardinality, 0)"
    is_empty = f"{nulls} IN ({stored}, {stored} - {deleted})"
    is_unbounded = f"{_member(MIN, leaf)} IS NULL AND {_member(MAX, leaf)} IS NULL"
    return f"{nulls} IS NULL OR ({is_unbounded} AND NOT {is_empty})"


def _member(side: str, leaf: Leaf) -> str:
    names = map(quote_identifier, leaf.physical_path)
    return ".".join((_PARSED, side, *names))
