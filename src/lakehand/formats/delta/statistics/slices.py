"""Statistics of some row groups of a file, and of a file without some of its rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.protocol.schema import Leaf, PrimitiveType
from lakehand.formats.delta.statistics.compute import maximum_text, minimum_text
from lakehand.formats.delta.statistics.merge import (
    MAX,
    MIN,
    NULLS,
    Tree,
    comparable,
    has_bounds,
    member,
    parse_statistics,
    put,
    string_text,
    tree_text,
)
from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.footer_bounds import Bounds, leaf_bounds
from lakehand.parquet.leaves import DOUBLE, FLOAT, INT32, INT64
from lakehand.parquet.leaves import Leaf as StoredLeaf
from lakehand.parquet.leaves import leaves as parquet_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.formats.delta.statistics.merge import StatisticsRules
    from lakehand.parquet.footer import Footer

_INTEGERS = ("byte", "short", "integer", "long")
_FLOATS = {"float": (FLOAT,), "double": (FLOAT, DOUBLE)}
_MILLISECOND = timedelta(milliseconds=1)
_IS_INSTANT = {"timestamp": True, "timestamp_ntz": False}
_MICROSECONDS: dict[str, Callable[[int], int]] = {
    "ms": lambda value: value * 1000,
    "us": lambda value: value,
    "ns": lambda value: value // 1000,
}


def slice_statistics(
    text: str | None,
    footer: Footer,
    row_groups: Sequence[int],
    rules: StatisticsRules,
    *,
    rows: int,
) -> str:
    """Return `add.stats` of a file that would hold only the given row groups, with `rows` rows.

    `text` are the statistics of the whole file, of which no row is deleted.
    """
    whole = parse_statistics(text)
    stored = {leaf.path: (index, leaf) for index, leaf in enumerate(parquet_leaves(footer.schema))}
    is_legacy = calendar_class(footer.key_values).datetime == "legacy"
    minima: Tree = {}
    maxima: Tree = {}
    counts: Tree = {}
    for leaf in rules.leaves:
        index, column = stored.get(leaf.physical_path, (0, None))
        found = Bounds() if column is None else leaf_bounds(footer, index, column, row_groups)
        put(counts, leaf, _null_count(found, leaf, whole, rows=rows, all_rows=footer.rows))
        # Spark reads legacy dates as others than the numbers say.
        if column is not None and not (is_legacy and column.is_calendar):
            prefix = rules.string_prefix
            low, high = (_scalar(end, column, leaf) for end in (found.minimum, found.maximum))
            if low is not None and _is_within(low, leaf, member(whole, MIN, leaf), None):
                put(minima, leaf, minimum_text(low, string_prefix=prefix))
            if high is not None and _is_within(high, leaf, None, member(whole, MAX, leaf)):
                put(maxima, leaf, maximum_text(high, string_prefix=prefix))
    document: Tree = {"numRecords": str(rows), MIN: minima, MAX: maxima, NULLS: counts}
    if "tightBounds" in whole:
        document["tightBounds"] = json.dumps(whole["tightBounds"])
    return tree_text(document)


def _null_count(
    found: Bounds, leaf: Leaf, whole: Mapping[str, Any], *, rows: int, all_rows: int
) -> str | None:
    """Return the count; none in the whole file, or nothing else, tell it for any part."""
    known = member(whole, NULLS, leaf)
    if known == 0:
        return "0"
    if known == all_rows:
        return str(rows)
    return None if found.nulls is None else str(found.nulls)


def _is_within(value: pa.Scalar, leaf: Leaf, low: Any, high: Any) -> bool:
    """Say whether a value agrees with the log's bounds; with none of them it does not."""
    kind = leaf.type.name if isinstance(leaf.type, PrimitiveType) else ""
    try:
        inner = _comparable_value(value, kind)
        if low is not None:
            return bool(_rounded(comparable(low, kind), kind) <= inner)
        return high is not None and bool(inner <= _last(_rounded(comparable(high, kind), kind)))
    except (TypeError, ValueError, ArithmeticError):
        return False


def _comparable_value(value: pa.Scalar, kind: str) -> Any:
    plain = value.as_py()
    if isinstance(plain, datetime):
        return plain if plain.tzinfo else plain.replace(tzinfo=UTC)
    if isinstance(plain, date):
        return plain
    return plain.encode() if isinstance(plain, str) else _rounded(Decimal(plain), kind)


def _rounded(bound: Any, kind: str) -> Any:
    """Return the number that readers of a float make of its text."""
    return Decimal(float(np.float32(bound))) if kind == "float" else bound


def _last(bound: Any) -> Any:
    """Return the last value below an upper bound: that of a timestamp may lack its microseconds."""
    return bound + _MILLISECOND if isinstance(bound, datetime) else bound


def _scalar(value: Any, column: StoredLeaf, leaf: Leaf) -> pa.Scalar | None:
    """Return a stored bound as a value of the table's type; None where they do not match."""
    kind = leaf.type
    if value is None or not isinstance(kind, PrimitiveType) or not has_bounds(kind):
        return None
    if kind.decimal:
        return _decimal(value, column, kind.decimal[1])
    if kind.name in _IS_INSTANT:
        return _timestamp(value, column, kind.name)
    if kind.name in _FLOATS:
        is_float = column.physical_type in _FLOATS[kind.name] and column.meaning == ()
        return pa.scalar(value, pa.float64()) if is_float else None
    return _plain(value, column, kind.name)


def _plain(value: Any, column: StoredLeaf, kind: str) -> pa.Scalar | None:
    if kind == "string":
        return _text(value) if column.meaning == ("string",) else None
    if column.physical_type not in (INT32, INT64):
        return None
    if kind == "date":
        is_date = column.meaning == ("date",)
        return pa.scalar(value, pa.int32()).cast(pa.date32()) if is_date else None
    is_integer = column.meaning[:1] in ((), ("integer",))
    return pa.scalar(value, pa.int64()) if is_integer and kind in _INTEGERS else None


def _text(value: bytes) -> pa.Scalar | None:
    try:
        return pa.scalar(value.decode(), pa.string())
    except UnicodeDecodeError:
        return None  # shortened in the middle of a character


def _decimal(value: Any, column: StoredLeaf, scale: int) -> pa.Scalar | None:
    is_same = column.meaning[:1] == ("decimal",) and column.meaning[2] == scale
    if not is_same or column.physical_type not in (INT32, INT64):
        return None
    return pa.scalar(Decimal(value).scaleb(-scale), pa.decimal128(38, scale))


def _timestamp(value: Any, column: StoredLeaf, kind: str) -> pa.Scalar | None:
    is_instant = _IS_INSTANT[kind]
    if column.meaning[:1] != ("timestamp",) or column.meaning[2] is not is_instant:
        return None
    microseconds = _MICROSECONDS[column.meaning[1]](value)
    return pa.scalar(microseconds, pa.timestamp("us", "UTC" if is_instant else None))


_NULLS = "nullCount"


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def loosen_statistics(text: str | None, *, rows: int, visible: int) -> str:
    """Return `add.stats` for the same file with fewer visible rows than the `visible` before.

    A reader may trust a null count of loose statistics where it is none or all of the file's
    `rows`: so a column that had nothing but nulls among visible rows has them in all.

    >>> loosen_statistics('{"numRecords":3,"maxValues":{"a":1.50}}', rows=3, visible=3)
    '{"numRecords":3,"maxValues":{"a":1.50},"tightBounds":false}'
    """
    known = _parse(text)
    was_tight = known.get("tightBounds", True) is not False
    if was_tight and isinstance(known.get(_NULLS), dict):
        known[_NULLS] = _all_null_as(known[_NULLS], visible=visible, rows=rows)
    return tree_text(_texts({**known, "numRecords": rows, "tightBounds": False}))


def _parse(text: str | None) -> dict[str, Any]:
    try:
        parsed = load_json(text, parse_float=_Number) if text else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _all_null_as(counts: dict[str, Any], *, visible: int, rows: int) -> dict[str, Any]:
    return {
        name: _all_null_as(count, visible=visible, rows=rows)
        if isinstance(count, dict)
        else (rows if count == visible and visible else count)
        for name, count in counts.items()
    }


def _texts(value: Any) -> Tree | str:
    if isinstance(value, dict):
        return {name: _texts(item) for name, item in value.items()}
    if isinstance(value, _Number):
        return str(value)
    return string_text(value) if isinstance(value, str) else json.dumps(value)
