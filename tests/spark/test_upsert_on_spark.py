"""Upserts with real tasks: keys go to them through the ledger, which then is gone."""

from __future__ import annotations

import pytest

from lakehand.runs import list_runs
from support import spark_upserts
from support.compactions import open_table
from support.deduplications import PROPERTIES, append, contents, rows
from support.upserts import upserted

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.in_turn("kind"),
    pytest.mark.timeout(400),
]

BATCHES = [[(100 * b + i, 0, b) for i in range(50)] for b in range(3)]


@pytest.mark.only_on("spark", "cluster")
@pytest.mark.parametrize("way", PROPERTIES)
def test_tasks_on_spark_find_keys_and_take_rows_out(host, tmp_path, way):
    path = tmp_path / "t"
    for batch in BATCHES:
        append(path, rows(*batch), configuration=PROPERTIES[way])
    given = [(n, 1, 9) for n in (1, 2, 49, 101, 250, 1000)]

    report = host.call(spark_upserts.upsert, path, given, seconds=300)

    assert contents(path) == upserted((row for batch in BATCHES for row in batch), given)
    assert (report["rows_updated"], report["rows_inserted"]) == (4, 2)
    assert list_runs(open_table(str(path)).store) == []
