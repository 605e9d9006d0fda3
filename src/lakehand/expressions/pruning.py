"""Which files a predicate cannot match, and which it matches as a whole, by facts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import PredicateError
from lakehand.expressions.conditions import conditions_of
from lakehand.expressions.facts import gather_facts
from lakehand.expressions.session import compute
from lakehand.expressions.truth import Truth, combine, leaves

if TYPE_CHECKING:
    from lakehand.expressions.predicate import Predicate

__all__ = ["ALL", "NONE", "UNKNOWN", "decide", "may_match"]

ALL, NONE, UNKNOWN = "all", "none", "unknown"


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
    parts = list(leaves(predicate.condition))
    conditions = [sql for part in parts for sql in conditions_of(part, facts.columns)]
    try:
        answers = compute(", ".join(conditions), facts.table)
    except PredicateError:
        # The predicate fails on some of the values; computing it for the rows will tell.
        maybe = np.ones(files.num_rows, dtype=np.bool_)
        return Truth(maybe, maybe, maybe)
    flags = [column.to_numpy().astype(np.bool_) for column in answers.columns]
    triples = zip(flags[0::3], flags[1::3], flags[2::3], strict=True)
    truths = {id(part): Truth(*triple) for part, triple in zip(parts, triples, strict=True)}
    return combine(predicate.condition, truths)
