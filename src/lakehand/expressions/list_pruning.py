"""What a test for a long list of values may be in files of which only bounds are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import sqlglot
from sqlglot import exp

from lakehand.expressions.conditions import CUT_TEXT_BYTES, known_column
from lakehand.expressions.facts import Family, Knowledge
from lakehand.expressions.session import compute
from lakehand.expressions.truth import Truth
from lakehand.expressions.value_lists import with_lists

if TYPE_CHECKING:
    import numpy.typing as npt

    from lakehand.expressions.facts import Column, Facts
    from lakehand.expressions.value_lists import ValueList

    Flags = npt.NDArray[np.bool_]

__all__ = ["list_truth"]


def list_truth(values: ValueList, facts: Facts) -> Truth:
    """Say of each file whether the test may be true, false, null for one of its rows."""
    operand = sqlglot.parse_one(values.operand.sql, dialect="duckdb")
    used = {column.name for column in operand.find_all(exp.Column)}
    if used and all(facts.columns[name].knowledge is Knowledge.VALUE for name in used):
        return _computed(values, facts)
    column = known_column(operand, facts.columns)
    if column is None or column.family is None:
        maybe = np.ones(facts.table.num_rows, np.bool_)
        return Truth(maybe, maybe, maybe)
    answers = compute(
        f"{column.min}, {column.max}, {column.may_be_set}, {column.may_be_null}", facts.table
    )
    low, high, is_set, is_null = answers.columns
    may_be_set, may_be_null = _flags(is_set), _flags(is_null)
    if not len(values.values):  # Nulls alone: the test is never true, and never false.
        none = np.zeros(facts.table.num_rows, np.bool_)
        return Truth(none, none, ~none)
    found = _may_be_within(values, column, low, high)
    null = may_be_null | values.has_null
    return Truth(may_be_set & found, may_be_set, null)


def _computed(values: ValueList, facts: Facts) -> Truth:
    answer = with_lists(facts.table, [values])[values.name]
    true, null = _flags(pc.fill_null(answer, False)), _flags(pc.is_null(answer))  # noqa: FBT003
    return Truth(true, ~true & ~null, null)


def _flags(values: pa.ChunkedArray) -> Flags:
    flags: Flags = values.to_numpy().astype(np.bool_)
    return flags


def _may_be_within(
    values: ValueList, column: Column, low: pa.ChunkedArray, high: pa.ChunkedArray
) -> Flags:
    """Say of each file whether one of the values lies between its bounds."""
    wanted = values.values.type
    if pat.is_floating(wanted) and pc.any(pc.is_nan(values.values)).as_py():
        return np.ones(len(low), np.bool_)  # NaN is above all others, and bounds leave it out.
    listed = np.sort(_sortable(values.values))
    lows, highs = low.cast(wanted), high.cast(wanted)
    first = np.searchsorted(listed, _sortable(_filled(lows, values)), side="left")
    behind = np.searchsorted(listed, _sortable(_filled(highs, values)), side="right")
    first = np.where(_flags(lows.is_null()), 0, first)
    behind = np.where(_flags(highs.is_null()), len(listed), behind)
    found: Flags = first < behind
    if column.family is Family.TEXT:
        found |= _may_be_cut(listed, highs, behind)
    return found


def _filled(bounds: pa.ChunkedArray, values: ValueList) -> pa.ChunkedArray:
    """Put some value in the place of bounds that are not known."""
    return pc.fill_null(bounds, values.values[0])


def _may_be_cut(listed: npt.NDArray[Any], highs: pa.ChunkedArray, behind: Any) -> Flags:
    """Say where a value may be below a maximum that its writer has cut to what it begins with."""
    long = pc.greater_equal(pc.binary_length(highs), CUT_TEXT_BYTES)
    cut = np.zeros(len(highs), np.bool_)
    for index in np.flatnonzero(_flags(pc.fill_null(long, False))):  # noqa: FBT003  Arrow's own
        place = behind[index]
        cut[index] = place < len(listed) and listed[place].startswith(highs[index].as_py())
    return cut


def _sortable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values that NumPy compares as SQL does."""
    type_ = values.type
    if pat.is_timestamp(type_) or pat.is_date64(type_):
        values = values.cast(pa.int64())
    elif pat.is_date32(type_):
        values = values.cast(pa.int32())
    if pat.is_integer(values.type) or pat.is_floating(values.type):
        array: npt.NDArray[Any] = values.to_numpy()
        return array
    return np.array(values.to_pylist(), dtype=object)
