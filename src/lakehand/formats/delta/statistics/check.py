"""Which files lack statistics, and whether stated ones hold for the values of a file."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from lakehand.expressions.literals import quote_identifier, quote_string
from lakehand.formats.delta.log.log_source import open_log_source
from lakehand.formats.delta.log.replay import ROW_COUNT, live_relation
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.statistics.merge import StatisticsRules, has_bounds
from lakehand.parquet.calendar import FIRST_MODERN_DAY, FIRST_MODERN_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.formats.delta.protocol.schema import Leaf
    from lakehand.formats.delta.statistics.compute import LeafFacts
    from lakehand.storage import Store

_PARSED = "parsed_statistics"
_MIN, _MAX, _NULLS = "minValues", "maxValues", "nullCount"


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
    """Return the shape that statistics are read with; values are only looked for, so as texts."""
    shape: dict[str, Any] = {_NULLS: {}, _MIN: {}, _MAX: {}}
    for leaf in leaves:
        _place(shape, (_NULLS, *leaf.physical_path), "BIGINT")
        if has_bounds(leaf.type):
            _place(shape, (_MIN, *leaf.physical_path), "VARCHAR")
            _place(shape, (_MAX, *leaf.physical_path), "VARCHAR")
    return {name: members for name, members in shape.items() if members}


def _place(shape: dict[str, Any], path: Sequence[str], type_: str) -> None:
    *parents, last = path
    for name in parents:
        shape = shape.setdefault(name, {})
    shape[last] = type_


def _lacks(leaf: Leaf) -> str:
    nulls = _member(_NULLS, leaf)
    if not has_bounds(leaf.type):
        return f"{nulls} IS NULL"
    stored, deleted = f'"{ROW_COUNT}"', "coalesce(deletionVector.cardinality, 0)"
    is_empty = f"{nulls} IN ({stored}, {stored} - {deleted})"
    is_unbounded = f"{_member(_MIN, leaf)} IS NULL AND {_member(_MAX, leaf)} IS NULL"
    return f"{nulls} IS NULL OR ({is_unbounded} AND NOT {is_empty})"


def _member(side: str, leaf: Leaf) -> str:
    names = map(quote_identifier, leaf.physical_path)
    return ".".join((_PARSED, side, *names))


_FIRST_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
                yield f"{name} has {_text(actual)}, and {bound} as its {word} value"


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
    if _is_ancient(actual):
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


def _is_ancient(value: pa.Scalar) -> bool:
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


def _text(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, UnicodeError):
        return "a value beyond it"
