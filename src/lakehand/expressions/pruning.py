"""Which files a predicate cannot match, and which it matches as a whole, by facts alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from lakehand.errors import PredicateError
from lakehand.expressions.conditions import conditions_of
from lakehand.expressions.facts import gather_facts
from lakehand.expressions.list_pruning import list_truth
from lakehand.expressions.logic import Junction, Negation, leaves
from lakehand.expressions.session import compute
from lakehand.expressions.truth import Truth, combine

if TYPE_CHECKING:
    from lakehand.expressions.facts import Facts
    from lakehand.expressions.logic import Logic
    from lakehand.expressions.predicate import Predicate

__all__ = ["ALL", "NONE", "UNKNOWN", "decide", "may_match"]

ALL, NONE, UNKNOWN = "all", "none", "unknown"
#: Parts of a condition that are held against bounds; tests for long lists of values count none.
_MOST_JUDGED = 400


def decide(predicate: Predicate, files: pa.Table) -> pa.Array:
    """Say of each file whether `predicate` keeps `all` of its rows, `none`, or that it's `unknown`.

    `files` has the columns `rows`, `partition` and `bounds` of `Snapshot.files`.
    """
    truth = _truth(predicate, files)
    always = ~truth.false & ~truth.null
    return pa.array(np.select([~truth.true, always], [NONE, ALL], default=UNKNOWN))


def may_match(predicate: Predicate, files: pa.Table) -> pa.BooleanArray:
    """Say of each file whether it has to be read for `predicate`."""
    return pa.array(_truth(predicate, files).true)


def _truth(predicate: Predicate, files: pa.Table) -> Truth:
    facts = gather_facts(predicate, files)
    lists = {one.name: one for one in predicate.lists}
    parts = dict.fromkeys(map(str, leaves(predicate.condition)))
    try:
        answers = {name: list_truth(lists[name], facts) for name in parts if name in lists}
        answers |= _judged([part for part in parts if part not in lists], facts)
    except (PredicateError, RecursionError):
        # The predicate fails on some of the values, or nests too deeply to be judged by bounds;
        # computing it for the rows will tell.
        maybe = np.ones(files.num_rows, dtype=np.bool_)
        return Truth(maybe, maybe, maybe)
    return combine(predicate.condition, lambda leaf: answers[str(leaf)])


def _judged(parts: list[str], facts: Facts) -> dict[str, Truth]:
    """Return what bounds say of each part; of more than so many, or of deep ones, nothing."""
    parsed = {part: _tree(part) for part in parts[:_MOST_JUDGED]}
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
    """Return a compiled part as a tree; None if it nests more deeply than the parser does.

    A compiled part has parentheses around every operation, so it nests where its text does not.
    """
    try:
        return sqlglot.parse_one(part, dialect="duckdb")
    except RecursionError:
        return None


def _connected(tree: exp.Expr) -> Logic:
    """Return what AND, OR and NOT connect in a compiled part, which may be made of several."""
    match tree:
        case exp.And() | exp.Or():
            word: Literal["AND", "OR"] = "AND" if isinstance(tree, exp.And) else "OR"
            return Junction(word, (_connected(tree.left), _connected(tree.right)))
        case exp.Not():
            return Negation(_connected(tree.this))
        case exp.Paren():
            return _connected(tree.this)
    return tree
