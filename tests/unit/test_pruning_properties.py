"""What bounds decide about a file holds for each of its rows, whatever the bounds leave out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import decide, may_match
from support.rows_and_bounds import SCHEMA, facts, files, predicates

columns_with_bounds = st.one_of(st.just(set("ifst")), st.sets(st.sampled_from("ifst")))
tables = st.lists(st.tuples(files(), columns_with_bounds), min_size=1, max_size=12)


@pytest.mark.parametrize("columns", ["i", "f", "s", "t", "p", "ifstp"])
def test_a_decision_holds_for_every_row(columns):
    @settings(max_examples=40, deadline=None)
    @given(tables, predicates(columns))
    def check(table, text):
        batches, known = [batch for batch, _ in table], [names for _, names in table]
        predicate = parse_predicate(text, SCHEMA)
        decisions = decide(predicate, facts(batches, known=known)).to_pylist()
        for batch, decision, kept in zip(
            batches, decisions, _kept(predicate, batches), strict=True
        ):
            assert decision != "none" or kept == 0
            assert decision != "all" or kept == batch.num_rows

    check()


@settings(max_examples=40, deadline=None)
@given(tables, predicates("ifstp"))
def test_a_pruned_read_equals_the_whole_read(table, text):
    batches, known = [batch for batch, _ in table], [names for _, names in table]
    predicate = parse_predicate(text, SCHEMA)
    wanted = may_match(predicate, facts(batches, known=known)).to_pylist()

    pruned = [batch for batch, is_wanted in zip(batches, wanted, strict=True) if is_wanted]
    assert _rows(predicate, pruned) == _rows(predicate, batches)


def _kept(predicate, batches: list[pa.RecordBatch]) -> list[int]:
    marked = [
        batch.append_column("file", pa.array([index] * batch.num_rows))
        for index, batch in enumerate(batches)
    ]
    kept = keep_true(predicate, pa.concat_batches(marked))["file"].to_pylist()
    return [kept.count(index) for index in range(len(batches))]


def _rows(predicate, batches: list[pa.RecordBatch]) -> str:
    kept = [keep_true(predicate, pa.concat_batches(batches))] if batches else []
    return str([row for batch in kept for row in batch.to_pylist()])
