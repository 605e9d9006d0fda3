"""Tables in memory: other processes do not see them, so all tasks run in this one."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import RefusedError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
VERBS = {
    "compact": lambda table: table.compact(),
    "cluster": lambda table: table.cluster(by=["id"]),
    "shuffle": lambda table: table.cluster(by=["id"], sort_task_bytes=2**10),
    "maintain": lambda table: table.maintain(),
    "deduplicate": lambda table: table.deduplicate(key=["name"]),
    "delete": lambda table: table.delete(where="id < 5"),
}


@pytest.fixture
def table():
    settings = {"min_files": 2, "automatic_min_files": 2, "quiet_period": "0s"}
    made = lakehand.create_table(f"memory://{uuid.uuid4().hex}/t", SCHEMA, **settings)
    for start in range(0, 60, 10):
        made.append(pa.table({"id": range(start, start + 10), "name": ["a", "b"] * 5}, SCHEMA))
    return made


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_with_tasks_work(table, verb):
    before = table.snapshot().version
    report = VERBS[verb](table)

    assert report.outcome in {"committed", "done"}, report
    assert table.snapshot().version > before
    assert table.verify(deep=True, every=True).outcome == "sound"


def test_compaction_keeps_the_rows(table):
    rows = table.to_arrow().sort_by("id")
    assert (table.compact().files_after, table.to_arrow().sort_by("id")) == (1, rows)
    assert table.statistics(full=True).errors == ()


@pytest.mark.parametrize("settings", [{"engine": "spark"}, {"master": "local[1]"}])
def test_spark_is_refused_by_name(table, settings):
    with pytest.raises(RefusedError, match="in the memory of this process"):
        table.compact(**settings)
