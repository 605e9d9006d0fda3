"""Spark SQL with lakehand's system tables and jobs, also over Spark Connect."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

import lakehand
from support import spark_system

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]


@pytest.mark.only_on("spark", "connect")
@pytest.mark.one_in(2)
def test_system_tables_are_joined_with_tables_and_jobs_are_submitted(host, tmp_path):
    path, store = tmp_path / "orders", f"sqlite:///{tmp_path}/jobs.db"
    deltalake.write_deltalake(str(path), pa.table({"id": [1, 2, 3]}))
    with lakehand.ServiceClient(store=store, create=True) as client:
        client.tables.add(str(path))
        found = host.call(spark_system.use_service, store, str(path))
        jobs = {entry.job.id: entry.job for entry in client.jobs.list()}
    assert found["submitted"] == [[1, "queued"]]
    assert found["again"] == [[[1, "queued"]], [[1, "queued"]]]
    assert found["other"] == [[2, "queued"]]
    assert (jobs[1].verb, jobs[1].asked_by) == ("maintain", "spark")
    assert (jobs[2].verb, jobs[2].options["where"]) == ("compact", "id > 0")
    joined = [["compact", 2], ["maintain", 1]]
    assert (found["view"], found["joined"]) == (joined, joined)
    assert found["files"] == [[1]]
    assert found["report"] == "dry_run"
    assert found["foreign"] == [["default"]]


@pytest.mark.only_on("spark")
def test_wrong_uses_fail_with_the_reason(host):
    no_table, no_service, not_found = host.call(spark_system.failures)
    assert "there is no system table 'secrets'" in no_table
    assert (no_service, not_found) == ("SERVICE_ERROR", "NOT_A_TABLE")
