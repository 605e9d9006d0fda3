"""The statistics of a file that was just written, mostly from what its encoder computed anyway.

Arrow's encoder keeps the least and the greatest value and the nulls of every leaf. What it does not
tell is looked up in the rows while they pass: whether there is a NaN, nulls of lists and maps as a
whole, bounds of texts too long for a footer.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.formats.delta.files.statistics import LeafFacts, statistics_text
from lakehand.formats.delta.files.statistics_rules import has_bounds
from lakehand.parquet.columns import file_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from lakehand.formats.delta.files.statistics_rules import StatisticsRules
    from lakehand.formats.delta.protocol.schema import Leaf
    from lakehand.parquet.columns import FileColumn

__all__ = ["WrittenStatistics"]

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
                # Only texts of few bytes come so.
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
