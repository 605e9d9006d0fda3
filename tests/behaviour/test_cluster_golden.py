"""Golden tables hold the same rows once these are in order, whatever features the tables use."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.model.order import parse_terms
from lakehand.sorting.ordering import resolve_order
from support.compactions import tasks_inline
from support.exact_values import exact_rows
from support.golden import ABSENT_REASON, GOLDEN, expected_of
from support.golden_copies import copy_golden, rewritten_names
from support.rows import lakehand_rows

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=ABSENT_REASON)

SMALL = [name for name in rewritten_names() if expected_of(name)["rows"] < 10_000]
WAYS = [(name, ("hilbert", "linear")[place % 2]) for place, name in enumerate(SMALL)]


def orderable(table):
    """Return up to three columns that rows can be ordered by."""
    snapshot = table.snapshot()
    columns = []
    for name in snapshot.schema.names:
        term = parse_terms(f"`{name}`")
        try:
            order = resolve_order(
                term, "linear", snapshot.schema, partition_columns=snapshot.partition_columns
            )
        except ValidationError:
            continue
        columns += order.texts
    return columns[-3:]


@pytest.mark.parametrize(("name", "curve"), WAYS)
@pytest.mark.one_in(2)
def test_a_golden_table_in_order_holds_the_same_rows(name, curve, tmp_path):
    path = copy_golden(name, tmp_path)
    table = lakehand.open_table(path, engine="local")
    columns = orderable(table)
    if not columns or not table.snapshot().file_count:
        pytest.skip("nothing to put in order")
    before = exact_rows(lakehand_rows(path))

    with tasks_inline():
        report = table.cluster(by=columns, curve=curve, full=True)
        again = table.cluster(by=columns, curve=curve)

    assert (report.outcome, again.outcome) == ("committed", "nothing_to_do")
    assert exact_rows(lakehand_rows(path)) == before
