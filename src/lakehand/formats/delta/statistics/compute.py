"""The statistics of a data file as in `add.stats`: computed from its rows, or checked by them.

A bound that is missing keeps a file in a query; a wrong one loses rows. So bounds are left out
where engines disagree, and the footers of other writers are not believed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.types as pat

from lakehand.duckdb_pool import connect, unsliced
from lakehand.expressions.literals import quote_identifier, quote_string
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.statistics.merge import Tree, has_bounds, put, string_text, tree_text
from lakehand.parquet.calendar import FIRST_MODERN_DAY, FIRST_MODERN_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import Leaf
    from lakehand.formats.delta.statistics.merge import StatisticsRules

_LAST_ASCII, _LAST_CHARACTER = "\x7f", "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafFacts:
    """What is known of the values of a leaf in a file."""

    nulls: int
    #: None or null: there is no bound, or none that is safe.
    minimum: pa.Scalar | None = None
    maximum: pa.Scalar | None = None


def statistics_text(
    rules: StatisticsRules,
    facts: Mapping[tuple[str, ...], LeafFacts],
    *,
    rows: int,
    is_legacy: bool = False,
) -> str:
    """Return the text of `add.stats` for `facts`, which go by the physical paths of leaves.

    `is_legacy` says that readers will shift the file's ancient dates: what is counted here is not
    what they see, so such dates are no bounds.
    """
    counts: Tree = {}
    minima: Tree = {}
    maxima: Tree = {}
    prefix = rules.string_prefix
    for leaf in rules.leaves:
        found = facts[leaf.physical_path]
        put(counts, leaf, str(found.nulls))
        if _is_sure(found.minimum, is_legacy=is_legacy):
            put(minima, leaf, minimum_text(found.minimum, string_prefix=prefix))
        if _is_sure(found.maximum, is_legacy=is_legacy):
            put(maxima, leaf, maximum_text(found.maximum, string_prefix=prefix))
    document: Tree = {"numRecords": str(rows)}
    document |= {"minValues": minima, "maxValues": maxima, "nullCount": counts}
    if rules.states_tightness:
        document["tightBounds"] = "true"
    return tree_text(document)


def _is_sure(bound: pa.Scalar | None, *, is_legacy: bool) -> bool:
    """Say whether there is a bound, and readers take it for the same value."""
    return bound is not None and bound.is_valid and not (is_legacy and _is_ancient(bound))


class StatisticsCollector:
    """Sees the rows of a file (under physical names) go by and tells their statistics."""

    def __init__(self, rules: StatisticsRules, *, is_legacy: bool = False) -> None:
        self._rules = rules
        self._is_legacy = is_legacy
        self._connection = connect(threads=1)
        self._query = _aggregate_query(rules)
        self._aggregates: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def forget(self) -> None:
        """Forget the rows of a file that could not be read to its end."""
        self._aggregates = []

    def add(self, rows: pa.Table) -> None:
        self._connection.register("file_rows", unsliced(rows))
        self._aggregates.append(self._connection.sql(self._query).to_arrow_table())
        self._connection.unregister("file_rows")

    def finish(self, *, stored_rows: int | None = None) -> str:
        """Return the statistics as the text of `add.stats`, and begin the next file.

        `stored_rows` is how many rows the file has, where deleted ones did not go by.
        """
        rows, facts = self.facts()
        return self.text(facts, rows=rows if stored_rows is None else stored_rows)

    def text(self, facts: Mapping[tuple[str, ...], LeafFacts], *, rows: int) -> str:
        """Return `facts` as the JSON of `add.stats` for a file of `rows` rows."""
        return statistics_text(self._rules, facts, rows=rows, is_legacy=self._is_legacy)

    def facts(self) -> tuple[int, dict[tuple[str, ...], LeafFacts]]:
        """Return the number of rows, and what is known of each leaf, and begin the next file."""
        totals = self._totals()
        rows = totals["rows"].as_py()
        facts = {
            leaf.physical_path: LeafFacts(
                nulls=rows - totals[f"present{position}"].as_py(),
                minimum=totals.get(f"min{position}"),
                maximum=totals.get(f"max{position}"),
            )
            for position, leaf in enumerate(self._rules.leaves)
        }
        return rows, facts

    def _totals(self) -> dict[str, pa.Scalar]:
        """Combine the aggregates of all row groups into one row."""
        aggregates = pa.concat_tables(self._aggregates)
        self._aggregates = []
        self._connection.register("aggregates", aggregates)
        folds = ", ".join(_fold(name) for name in aggregates.column_names)
        query = f"SELECT {folds} FROM aggregates"
        row: pa.Table = self._connection.sql(query).to_arrow_table()
        return {name: row.column(name)[0] for name in row.column_names}


def _is_ancient(value: pa.Scalar) -> bool:
    if pat.is_date32(value.type):
        return bool(value.value < FIRST_MODERN_DAY)
    is_instant = pat.is_timestamp(value.type) and value.type.tz is not None
    return is_instant and bool(value.value < FIRST_MODERN_SECOND * _MICROSECONDS)


def _aggregate_query(rules: StatisticsRules) -> str:
    aggregates = ["count(*) AS rows"]
    for position, leaf in enumerate(rules.leaves):
        value = _leaf_expression(leaf)
        aggregates.append(f"count({value}) AS present{position}")
        if has_bounds(leaf.type):
            aggregates.append(f"min({value}) AS min{position}")
            aggregates.append(f"max({value}) AS max{position}")
    return f"SELECT {', '.join(aggregates)} FROM file_rows"


def _leaf_expression(leaf: Leaf) -> str:
    first, *rest = leaf.physical_path
    expression = quote_identifier(first)
    for name in rest:
        expression = f"struct_extract({expression}, {quote_string(name)})"
    return expression


def _fold(name: str) -> str:
    if name.startswith(("min", "max")):
        return f"{name[:3]}({name}) AS {name}"
    return f"sum({name})::BIGINT AS {name}"


def minimum_text(value: pa.Scalar, *, string_prefix: int) -> str | None:
    """Return the JSON text of a lower bound; None where none is safe.

    A missing text is always correct, so years that Python cannot print have none.
    """
    if not value.is_valid:
        return None
    if pat.is_floating(value.type):
        # -0.0 and 0.0 are equal, so the bound is the one that sorts first bit by bit.
        return _float_text(-0.0 if value.as_py() == 0 else value.as_py())
    if pat.is_string(value.type):
        text = _text(value)
        return None if text is None else string_text(text[:string_prefix])
    return _exact_text(value)


def maximum_text(value: pa.Scalar, *, string_prefix: int) -> str | None:
    """Return the JSON text of an upper bound; None where none is safe."""
    if not value.is_valid:
        return None
    if pat.is_floating(value.type):
        # NaN sorts above everything: then there is no bound that all engines understand.
        return _float_text(0.0 if value.as_py() == 0 else value.as_py())
    if pat.is_string(value.type):
        text = _text(value)
        bound = None if text is None else _upper_prefix(text, string_prefix)
        return None if bound is None else string_text(bound)
    return _exact_text(value)


def _text(value: pa.Scalar) -> str | None:
    """Return a string; None for bytes that are no UTF-8, which Spark lets into its strings."""
    try:
        return str(value.as_py())
    except UnicodeDecodeError:
        return None


def _upper_prefix(text: str, length: int) -> str | None:
    """Return a short string that sorts behind `text`, compared as UTF-8; None if there is none."""
    if len(text) <= length:
        return text
    for end in range(length, min(2 * length, len(text))):
        if text[end] != _LAST_CHARACTER:
            return text[:end] + (_LAST_ASCII if text[end] < _LAST_ASCII else _LAST_CHARACTER)
    return None


def _float_text(value: float) -> str | None:
    return json.dumps(value) if math.isfinite(value) else None


def _exact_text(value: pa.Scalar) -> str | None:
    try:
        if pat.is_timestamp(value.type):
            return _timestamp_text(value)
        if pat.is_date(value.type):
            return json.dumps(value.as_py().isoformat())
    except (OverflowError, ValueError):
        return None  # a year outside of 1 to 9999
    return format(value.as_py(), "f" if pat.is_decimal(value.type) else "d")


def _timestamp_text(value: pa.Scalar) -> str:
    # Floored, also for an upper bound: readers know that and add a millisecond to it.
    at = _EPOCH + timedelta(milliseconds=value.value // 1000)
    text = at.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return json.dumps(text + "Z" if value.type.tz else text)


_FIRST_DAY = date(1970, 1, 1)
#: Bounds of times are cut to the millisecond, upper ones too, and readers know that.
_TICK_MICROSECONDS = 1000


def contradictions(
    text: str | None,
    leaves: Sequence[Leaf],
    facts: Mapping[tuple[str, ...], LeafFacts],
    *,
    hides_rows: bool,
) -> tuple[str, ...]:
    """Return in words what `text`, the statistics of a file, says otherwise than its rows do.

    `hides_rows` says that some rows are deleted, so that counts may be those of all rows.
    """
    try:
        stated = load_json(text or "", parse_float=Decimal)
    except ValueError:
        return ()
    if not isinstance(stated, dict):
        return ()
    is_tight = not hides_rows or stated.get("tightBounds") is True
    return tuple(wrong_statistics(stated, leaves, facts, counts_nulls=is_tight))


def wrong_statistics(
    stated: Mapping[str, Any],
    leaves: Sequence[Leaf],
    facts: Mapping[tuple[str, ...], LeafFacts],
    *,
    counts_nulls: bool,
) -> Iterator[str]:
    """Yield in words every bound that leaves a value out, and every wrong count of nulls.

    `counts_nulls` says whether the stated counts are those of the rows that were seen.
    """
    for leaf in leaves:
        found = facts[leaf.physical_path]
        name = ".".join(leaf.path)
        nulls = _stated_statistics_member(stated.get("nullCount"), leaf.physical_path)
        if counts_nulls and isinstance(nulls, int) and nulls != found.nulls:
            yield f"{name} has {found.nulls:,} nulls, and {nulls:,} by its statistics"
        for side, actual in (("minValues", found.minimum), ("maxValues", found.maximum)):
            bound = _stated_statistics_member(stated.get(side), leaf.physical_path)
            if bound is None or actual is None or not actual.is_valid:
                continue
            seen = _as_stated(actual, leaf)
            if _leaves_out(bound, seen, is_upper=side == "maxValues"):
                word = "greatest" if side == "maxValues" else "least"
                yield f"{name} has {_shown(actual)}, and {bound} as its {word} value"


def _as_stated(value: pa.Scalar, leaf: Leaf) -> pa.Scalar:
    """Return a value as narrow as its column was: bounds of that time were written so."""
    was_narrow = "float" in leaf.former_types and pat.is_float64(value.type)
    return value.cast(pa.float32()) if was_narrow else value


def _stated_statistics_member(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _leaves_out(bound: Any, actual: pa.Scalar, *, is_upper: bool) -> bool:
    try:
        stated, seen = _ranks(bound, actual)
    except (ValueError, TypeError, OverflowError, InvalidOperation, UnicodeError):
        return False
    if _is_ancient_date(actual):
        # Engines disagree on the calendar of such dates, so no bound of them can be judged.
        return False
    if not is_upper:
        return bool(seen < stated)
    slack = _TICK_MICROSECONDS - 1 if pat.is_timestamp(actual.type) else 0
    return bool(seen > stated + slack) if slack else bool(seen > stated)


def _ranks(bound: Any, actual: pa.Scalar) -> tuple[Any, Any]:
    """Return a bound and a value as things that compare as the values of the column do."""
    kind = actual.type
    if pat.is_string(kind):
        return str(bound).encode(), actual.as_buffer().to_pybytes()
    if pat.is_floating(kind):
        # As wide as the column: the text of a narrow number is another number when read wide.
        return _float_rank(pa.scalar(float(bound), kind).as_py()), _float_rank(actual.as_py())
    if pat.is_date(kind):
        return (date.fromisoformat(str(bound)[:10]) - _FIRST_DAY).days, actual.value
    if pat.is_timestamp(kind):
        return _microseconds(str(bound)), actual.cast(pa.timestamp("us", kind.tz)).value
    return Decimal(str(bound)), Decimal(str(actual.as_py()))


def _is_ancient_date(value: pa.Scalar) -> bool:
    if pat.is_date(value.type):
        return bool(value.value < FIRST_MODERN_DAY)
    return pat.is_timestamp(value.type) and bool(
        value.cast(pa.timestamp("us", value.type.tz)).value < FIRST_MODERN_SECOND * 10**6
    )


def _float_rank(value: float) -> tuple[bool, float]:
    """Return what sorts NaN above everything, as Spark does."""
    is_nan = math.isnan(value)
    return is_nan, 0.0 if is_nan else value


def _microseconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, UnicodeError):
        return "a value beyond it"
