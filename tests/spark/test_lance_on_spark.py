"""Lance tables with real tasks: Lance's own tasks are rows of the Spark job."""

from __future__ import annotations

import lance
import pytest

from lakehand.runs import list_runs
from lakehand.storage import open_store
from support import spark_lance
from support.lance_tables import (
    ROWS,
    add_indices,
    data_sizes,
    fragment_count,
    make_lance,
    rows_of,
    searches,
    some_rows,
    unknown_files,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
    pytest.mark.only_on("spark", "cluster"),
]


@pytest.fixture
def path(tmp_path):
    path = make_lance(tmp_path / "t")
    lance.dataset(path).delete("id % 10 = 3")
    return path


def in_halves(path):
    return {"target_file_bytes": sum(size for _, size in data_sizes(path)) // 2}


def test_each_group_is_a_task_and_searches_stay_the_same(host, path):
    add_indices(path)
    rows, found = rows_of(path), searches(path)

    report = host.call(spark_lance.call, path, "compact", in_halves(path), seconds=300)

    assert (report["outcome"], report["groups"]["committed"]) == ("committed", 2)
    assert (report["proof"]["kind"], report["proof"]["rows"]) == ("digest", rows.num_rows)
    assert (rows_of(path), searches(path), fragment_count(path)) == (rows, found, 2)
    assert (unknown_files(path), list_runs(open_store(path))) == (set(), [])


def test_rows_are_put_in_order(host, path):
    rows = rows_of(path)

    options = {"by": ["word", "id"], "curve": "linear", **in_halves(path)}
    report = host.call(spark_lance.call, path, "cluster", options, seconds=300)

    assert (report["outcome"], rows_of(path)) == ("committed", rows)
    words = lance.dataset(path).to_table(columns=["word"])["word"].to_pylist()
    assert words == sorted(words)


def test_duplicates_go_and_searches_find_the_others(host, path):
    add_indices(path)
    lance.write_dataset(some_rows(0, 2 * ROWS), path, mode="append")
    report = host.call(spark_lance.call, path, "deduplicate", {"key": ["id"]}, seconds=300)

    kept = 2 * ROWS - len([number for number in range(2 * ROWS) if number % 10 == 3])
    assert (report["outcome"], report["duplicates_removed"]) == ("committed", kept)
    assert rows_of(path)["id"].to_pylist() == sorted(set(rows_of(path)["id"].to_pylist()))
