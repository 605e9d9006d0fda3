"""Deduplication with real tasks: keys move between them through the ledger, which then is gone."""

from __future__ import annotations

import pytest

from lakehand.runs import list_runs
from support import spark_deduplications
from support.compactions import open_table
from support.deduplications import PROPERTIES, append, contents, kept, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]

BATCHES = [[(i % 40, b, 100 * b + i) for i in range(50)] for b in range(3)]


@pytest.mark.only_on("spark", "cluster")
@pytest.mark.parametrize("way", PROPERTIES)
def test_tasks_on_spark_leave_one_row_of_each_key(host, tmp_path, way):
    path = tmp_path / "t"
    for batch in BATCHES:
        append(path, rows(*batch), configuration=PROPERTIES[way])

    report = host.call(spark_deduplications.deduplicate, path, seconds=300)

    assert contents(path) == kept(BATCHES, keep="latest")
    assert (report["outcome"], report["duplicates_removed"]) == ("committed", 110)
    assert list_runs(open_table(str(path)).store) == []
