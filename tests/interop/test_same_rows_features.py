"""Demanding tables of delta-spark are the same to every engine, stream and feed once compacted."""

from __future__ import annotations

import json
import shutil

import pytest

from support.demanding_tables import DEMANDING_TABLES
from support.exact_values import exact_rows
from support.forced_compactions import compact_here
from support.rows import delta_rs_rows, lakehand_rows, spark_rows

BY_NAME = {table.name: table for table in DEMANDING_TABLES}


@pytest.fixture(params=BY_NAME, ids=lambda name: name.replace(" ", "-"))
def demanding(request):
    return BY_NAME[request.param]


@pytest.fixture(scope="module")
def originals():
    return {}


@pytest.fixture
def path(oracle, demanding, originals, tmp_path_factory, tmp_path):
    """Return a copy of the table, which is made only once."""
    if demanding.name not in originals:
        originals[demanding.name] = tmp_path_factory.mktemp("demanding") / "table"
        demanding.create(oracle, originals[demanding.name])
    return shutil.copytree(originals[demanding.name], tmp_path / "table")


def test_every_engine_reads_the_same_rows_after_a_compaction(oracle, demanding, path):
    before = exact_rows(spark_rows(oracle, path, columns=demanding.columns))
    ours = exact_rows(lakehand_rows(path))
    theirs = exact_rows(delta_rs_rows(path)) if demanding.table.delta_rs_reads else None

    report = compact_here(path)
    again = compact_here(path)

    assert (report.outcome, again.outcome) == ("committed", "nothing_to_do")
    assert exact_rows(spark_rows(oracle, path, columns=demanding.columns)) == before
    assert exact_rows(lakehand_rows(path)) == ours
    assert theirs is None or exact_rows(delta_rs_rows(path)) == theirs


@pytest.mark.parametrize(
    "demanding",
    [BY_NAME["all at once"], BY_NAME["ancient dates of the old calendar"]],
    ids=["all-at-once", "ancient-dates"],
)
def test_a_stream_sees_nothing_of_a_compaction_and_later_rows_once(oracle, path, tmp_path):
    seen = oracle.stream(path, tmp_path / "place")
    assert len(seen) == len(oracle.rows(path))

    compact_here(path)

    assert oracle.stream(path, tmp_path / "place") == []
    oracle.sql(f"INSERT INTO delta.`{path}` (id) VALUES (5000)")
    assert [json.loads(row)["id"] for row in oracle.stream(path, tmp_path / "place")] == [5000]


@pytest.mark.parametrize("demanding", [BY_NAME["all at once"]], ids=["all-at-once"])
def test_a_change_feed_sees_nothing_of_a_compaction_and_later_rows_once(oracle, path):
    before = oracle.changes(path, starting_version=5)

    report = compact_here(path)
    oracle.sql(f"INSERT INTO delta.`{path}` (id) VALUES (5000)")

    assert oracle.changes(path, starting_version=report.version)[0].count("5000") == 1
    after = oracle.changes(path, starting_version=5)
    assert len(after) == len(before) + 1
    assert set(before) < set(after)
