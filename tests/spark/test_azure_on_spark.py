"""A table in Azure, written and compacted by tasks of Spark."""

from __future__ import annotations

import pytest

import lakehand
from support import spark_compactions, spark_tables

pytestmark = pytest.mark.server


@pytest.mark.only_on("spark")
def test_spark_writes_compacts_and_reads_on_azure(host, azure_server):
    uri, options = azure_server.new_uri(), azure_server.options
    for number in range(3):
        query = f"SELECT id + {number * 10} AS id FROM range(10)"
        host.call(spark_tables.write, query, uri, "append", {}, options)
    table = lakehand.open_table(uri, storage_options=options)
    before = table.snapshot().file_count
    assert before >= 3

    report = host.call(spark_compactions.compact_with_options, uri, options)

    assert (report["ran_on"], report["files_removed"]) == ("spark", before)
    assert table.snapshot().file_count == report["files_added"] == 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(30))
    found = host.call(spark_tables.read, uri, {}, options)
    assert sorted(found["id"].to_pylist()) == list(range(30))
