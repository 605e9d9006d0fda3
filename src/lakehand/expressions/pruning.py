"""Selects files by statistics: those that cannot match a predicate, and those that match fully."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
import sqlglot
from sqlglot import exp

from lakehand.errors import PredicateError
from lakehand.expressions.column_facts import Column, Facts, Family, Knowledge, gather_facts
from lakehand.expressions.conditions import CUT_TEXT_BYTES, conditions_of, known_column
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.logic import Junction, Logic, Negation, leaves
from lakehand.expressions.value_lists import ValueList, with_lists

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate

if TYPE_CHECKING:
    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Per file: whether the predicate may be true, false, null."""

    true: Flags
    false: Flags
    null: Flags

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true, self.null)

    def __and__(self, other: Truth) -> Truth:
        return Truth(
            self.true & other.true,
            self.false | other.false,
            self.null & (other.true | other.null) | other.null & (self.true | self.null),
        )

    def __or__(self, other: Truth) -> Truth:
        return ~(~self & ~other)


def combine(condition: Logic, truth_of: Callable[[exp.Expr | str], Truth]) -> Truth:
    """Return the truth of `condition` from those of its leaves."""
    if isinstance(condition, Negation):
        return ~combine(condition.part, truth_of)
    if isinstance(condition, Junction):
        parts = (combine(part, truth_of) for part in condition.parts)
        return reduce(and_ if condition.word == "AND" else or_, parts)
    return truth_of(condition)


def list_truth(values: ValueList, facts: Facts) -> Truth:
    """Return for each file whether the test may be true, false, null for one of its rows."""
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
    if not len(values.values):  # Only nulls: the test is never true, and never false.
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
    """Return for each file whether one of the values is between its bounds."""
    wanted = values.values.type
    if pat.is_floating(wanted) and pc.any(pc.is_nan(values.values)).as_py():
        return np.ones(len(low), np.bool_)  # NaN is above all others, and not included in bounds.
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
    """Replace unknown bounds by any value."""
    return pc.fill_null(bounds, values.values[0])


def _may_be_cut(listed: npt.NDArray[Any], highs: pa.ChunkedArray, behind: Any) -> Flags:
    """Return where a value may be below the original of a truncated maximum."""
    long = pc.greater_equal(pc.binary_length(highs), CUT_TEXT_BYTES)
    cut = np.zeros(len(highs), np.bool_)
    for index in np.flatnonzero(_flags(pc.fill_null(long, False))):  # noqa: FBT003  Arrow's own
        position = behind[index]
        cut[index] = position < len(listed) and listed[position].startswith(highs[index].as_py())
    return cut


def _sortable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values that NumPy compares like SQL."""
    type_ = values.type
    if pat.is_timestamp(type_) or pat.is_date64(type_):
        values = values.cast(pa.int64())
    elif pat.is_date32(type_):
        values = values.cast(pa.int32())
    if pat.is_integer(values.type) or pat.is_floating(values.type):
        array: npt.NDArray[Any] = values.to_numpy()
        return array
    return np.array(values.to_pylist(), dtype=object)


ALL, NONE, UNKNOWN = "all", "none", "unknown"
#: Maximum number of leaves that are compared with bounds; tests for long value lists do not count.
_MAX_LEAVES = 400


def decide(predicate: Predicate, files: pa.Table) -> pa.Array:
    """Return for each file whether `predicate` selects `all` of its rows, `none`, or `unknown`.

    `files` has the columns `rows`, `partition` and `bounds` of `Snapshot.files`.
    """
    truth = _truth(predicate, files)
    always = ~truth.false & ~truth.null
    return pa.array(np.select([~truth.true, always], [NONE, ALL], default=UNKNOWN))


def may_match(predicate: Predicate, files: pa.Table) -> pa.BooleanArray:
    """Return for each file whether it has to be read for `predicate`."""
    return pa.array(_truth(predicate, files).true)


def _truth(predicate: Predicate, files: pa.Table) -> Truth:
    facts = gather_facts(predicate, files)
    lists = {one.name: one for one in predicate.lists}
    parts = dict.fromkeys(map(str, leaves(predicate.condition)))
    try:
        answers = {name: list_truth(lists[name], facts) for name in parts if name in lists}
        answers |= _judged([part for part in parts if part not in lists], facts)
    except (PredicateError, RecursionError):
        # The predicate fails on some of the values, or nests too deeply; evaluating it on rows will
        # decide.
        maybe = np.ones(files.num_rows, dtype=np.bool_)
        return Truth(maybe, maybe, maybe)
    return combine(predicate.condition, lambda leaf: answers[str(leaf)])


def _judged(parts: list[str], facts: Facts) -> dict[str, Truth]:
    """Return the truth of each leaf by bounds; unknown for too many or too deep ones."""
    parsed = {part: _tree(part) for part in parts[:_MAX_LEAVES]}
    trees = {part: _connected(tree) for part, tree in parsed.items() if tree is not None}
    pieces = [
        piece for tree in trees.values() for piece in leaves(tree) if isinstance(piece, exp.Expr)
    ]
    conditions = [sql for piece in pieces for sql in conditions_of(piece, facts.columns)]
    answers = compute(", ".join(conditions), facts.table).columns if conditions else []
    flags = [column.to_numpy().astype(np.bool_) for column in answers]
    triples = zip(flags[0::3], flags[1::3], flags[2::3], strict=True)
    truths = {id(piece): Truth(*triple) for piece, triple in zip(pieces, triples, strict=True)}
    maybe = np.ones(facts.table.num_rows, dtype=np.bool_)
    found = {part: combine(tree, lambda leaf: truths[id(leaf)]) for part, tree in trees.items()}
    return dict.fromkeys(parts, Truth(maybe, maybe, maybe)) | found


@lru_cache(maxsize=1024)
def _tree(part: str) -> exp.Expr | None:
    """Return a compiled leaf as a tree; None if it nests too deeply for the parser.

    A compiled leaf has parentheses around every operation, so it nests more deeply than its source.
    """
    try:
        return sqlglot.parse_one(part, dialect="duckdb")
    except RecursionError:
        return None


def _connected(tree: exp.Expr) -> Logic:
    """Return the AND, OR and NOT tree of a compiled leaf, which may consist of several."""
    match tree:
        case exp.And() | exp.Or():
            word: Literal["AND", "OR"] = "AND" if isinstance(tree, exp.And) else "OR"
            return Junction(word, (_connected(tree.left), _connected(tree.right)))
        case exp.Not():
            return Negation(_connected(tree.this))
        case exp.Paren():
            return _connected(tree.this)
    return tree
