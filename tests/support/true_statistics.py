"""Whether the statistics of a file are true of its rows, by the rules of the Delta protocol."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.table_columns import Column, Mode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_MODERN_DAY, _FIRST_MODERN_MICROS = -141_427, -2_208_988_800_000_000
_PREFIX = 32


def assert_true_statistics(
    text: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[Any, ...]],
    mode: Mode,
    *,
    is_legacy: bool = False,
) -> None:
    """Check row count, null counts and bounds, and that bounds are there where they can be.

    `is_legacy`: readers shift old dates of the file, so that these are no bounds.
    """
    stats = json.loads(text, parse_float=Decimal)
    assert stats["numRecords"] == len(rows)
    for place, column in enumerate(columns):
        values = [row[place] for row in rows]
        for path, kind, found in _leaves(column, values, mode, ()):
            _check_leaf(stats, path, kind, found, is_legacy=is_legacy)


def _leaves(
    column: Column, values: list[Any], mode: Mode, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType, list[Any]]]:
    path = (*above, column.physical_name(mode))
    if not pat.is_struct(column.type):
        yield path, column.type, values
        return
    for place, part in enumerate(column.parts):
        inner = [None if value is None else value[place] for value in values]
        yield from _leaves(part, inner, mode, path)


def _check_leaf(
    stats: dict[str, Any],
    path: tuple[str, ...],
    kind: pa.DataType,
    values: list[Any],
    *,
    is_legacy: bool,
) -> None:
    present = [value for value in values if value is not None]
    assert _member(stats["nullCount"], path) == len(values) - len(present), path
    low, high = _member(stats["minValues"], path), _member(stats["maxValues"], path)
    if not present or pat.is_nested(kind) or pat.is_boolean(kind) or pat.is_binary(kind):
        assert (low, high) == (None, None), path
        return
    check = next((check for test, check in _CHECKS if test(kind)), _check_exact)
    numbers = [_number(value, kind) for value in present]
    if is_legacy and (pat.is_date(kind) or (pat.is_timestamp(kind) and kind.tz)):
        first = _FIRST_MODERN_DAY if pat.is_date(kind) else _FIRST_MODERN_MICROS
        assert low is None or min(numbers) >= first, path
        assert high is None or max(numbers) >= first, path
        if low is None or high is None:
            return
    assert check(low, high, numbers), (path, low, high, min(numbers), max(numbers))


def _member(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = tree
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _number(value: Any, kind: pa.DataType) -> Any:
    if not pat.is_floating(kind):
        return value
    bits = np.int64 if kind == pa.float64() else np.int32
    return float(np.array([value], bits).view(np.float64 if bits is np.int64 else np.float32)[0])


def _check_exact(low: Any, high: Any, values: list[Any]) -> bool:
    return (low, high) == (min(values), max(values))


def _check_floats(low: Any, high: Any, values: list[float]) -> bool:
    """No bound may be stated that a NaN or an infinity would fall outside of."""
    numbers = [value for value in values if not math.isnan(value)]
    has_nan = len(numbers) < len(values)
    if not numbers:
        return (low, high) == (None, None)
    if high is not None and (has_nan or float(high) < max(numbers)):
        return False
    if any(map(math.isinf, numbers)):
        return low is None or float(low) <= min(numbers)
    return low is not None and float(low) <= min(numbers) and (has_nan or high is not None)


def _check_texts(low: Any, high: Any, values: list[str]) -> bool:
    encoded = sorted(value.encode() for value in values)
    if low is None or len(low) > _PREFIX or low.encode() > encoded[0]:
        return False
    if high is None:  # nothing short sorts behind the last character of Unicode
        return set(encoded[-1].decode()[_PREFIX : 2 * _PREFIX]) == {"\U0010ffff"}
    return high.encode() >= encoded[-1]


def _check_dates(low: Any, high: Any, values: list[int]) -> bool:
    if min(values) < _FIRST_DAY or max(values) > _LAST_DAY:
        return all(text is None or _days(text) in values for text in (low, high))
    return (_days(low), _days(high)) == (min(values), max(values))


def _days(text: str) -> int:
    return (date.fromisoformat(text) - _EPOCH.date()).days


def _check_times(low: Any, high: Any, values: list[int]) -> bool:
    """Readers take a bound for a whole millisecond, which begins at it."""
    bounds = zip((low, high), (min(values), max(values)), strict=True)
    return all(_micros(text) == value // 1000 * 1000 for text, value in bounds)


def _micros(text: str) -> int:
    at = datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


_CHECKS = (
    (pat.is_floating, _check_floats),
    (pat.is_string, _check_texts),
    (pat.is_date, _check_dates),
    (pat.is_timestamp, _check_times),
)
