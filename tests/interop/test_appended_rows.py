"""delta-spark reads what lakehand appends to tables with each feature, or lakehand refuses to."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import RefusedError
from lakehand.sink import TableSink
from support.featured_tables import FEATURED_TABLES
from support.sinks import SCHEMA, batch_of

#: Those that ask something of new files or commits beyond what every table asks.
DEMANDING = {"deletion vectors", "column mapping by name", "column mapping by id"}
ALLOWED = [table for table in FEATURED_TABLES if table.name in DEMANDING]
REFUSED = [table for table in FEATURED_TABLES if table.append_refused is not None]


@pytest.mark.parametrize("featured", ALLOWED, ids=lambda table: table.name)
@pytest.mark.one_in(4)
def test_appended_rows_are_read_beside_those_that_were_there(oracle, tmp_path, featured):
    featured.provide(oracle, tmp_path / "t")
    before = oracle.rows(tmp_path / "t")

    lakehand.open_table(tmp_path / "t").append(pa.table({"id": [7_777]}))

    new = [row for row in oracle.rows(tmp_path / "t") if row not in before]
    assert [json.loads(row)["id"] for row in new] == [7_777]
    assert len(oracle.rows(tmp_path / "t")) == len(before) + 1


@pytest.mark.parametrize("featured", REFUSED, ids=lambda table: table.name)
def test_appends_are_refused_by_name_where_they_would_break_the_table(oracle, tmp_path, featured):
    featured.provide(oracle, tmp_path / "t")
    before = oracle.rows(tmp_path / "t")

    with pytest.raises(RefusedError, match=featured.append_refused):
        lakehand.open_table(tmp_path / "t").append(pa.table({"id": [7_777]}))

    assert oracle.rows(tmp_path / "t") == before


def test_delta_spark_writes_into_a_table_that_a_sink_made_and_the_sink_goes_on(oracle, tmp_path):
    place = tmp_path / "t"
    with TableSink(place, writer_id="w", schema=SCHEMA, partition_by="part") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1, 2]))
        sink.commit_epoch()
        oracle.sql(f"INSERT INTO delta.`{place}` VALUES (3, 9, 'p0')")
        sink.begin_epoch(2)
        sink.write(batch_of([4]))
        sink.commit_epoch()

    assert sorted(json.loads(row)["id"] for row in oracle.rows(place)) == [1, 2, 3, 4]
    assert [entry["operation"] for entry in oracle.history(place)][:2] == [
        "STREAMING UPDATE",
        "WRITE",
    ]
