"""delta-spark skips files by statistics that lakehand computed, and finds the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehand import open_table
from support.featured_tables import FEATURED_TABLES
from support.rows import assert_same_rows, delta_rs_rows, spark_rows
from support.stripped_statistics import live_adds, without_statistics
from support.tasks_here import run_tasks_here

IDENTITY = ("*", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_version")
TRACKED = "row tracking"
#: Tables whose entries have more than a plain one.
FEATURES = ("deletion vectors", "column mapping by id", TRACKED, "type widening")


@pytest.fixture(autouse=True)
def tasks_here(monkeypatch):
    run_tasks_here(monkeypatch)


@pytest.fixture(params=FEATURES, ids=lambda name: name.replace(" ", "-"))
def featured(request, oracle, tmp_path):
    [feature] = [one for one in FEATURED_TABLES if one.name == request.param]
    feature.provide(oracle, tmp_path / "table")
    return feature, tmp_path / "table"


def rows_of(oracle, feature, path):
    return spark_rows(oracle, path, columns=IDENTITY if feature.name == TRACKED else ("*",))


def test_delta_spark_skips_files_that_it_could_not_skip_before(oracle, tmp_path):
    path = tmp_path / "table"
    for start in range(0, 400, 100):
        ids = range(start, start + 100)
        values = {"id": pa.array(ids, pa.int64()), "name": [f"name {n:05}" for n in ids]}
        values |= {"price": pa.array([n / 8 for n in ids]), "s": [{"x": n} for n in ids]}
        write_deltalake(str(path), pa.table(values), mode="append")
    without_statistics(path)
    filters = ("id = 150", "name > 'name 00350'", "price < 3.5", "s.x BETWEEN 210 AND 220")
    before = {where: oracle.rows(path, where=where) for where in filters}
    assert {len(oracle.files_read(path, where=where)) for where in filters} == {4}

    report = open_table(path, engine="local").statistics()

    assert report.files_refreshed == 4
    assert [len(oracle.files_read(path, where=where)) for where in filters] == [1] * len(filters)
    assert {where: oracle.rows(path, where=where) for where in filters} == before
    assert oracle.files_read(path, where="id > 1000") == []


def expected_late_row(feature):
    return ['{"id":1000}'] if any("1000" in text for text in feature.after) else []


def assert_verified(path, *, rows):
    table = open_table(path, engine="local", min_files=2)
    assert table.compact().outcome == "committed"
    report = table.verify()
    [check] = report.proofs
    assert (report.proof_outcome, check.matches_record) == ("equal", True)
    assert check.inputs is not None
    assert check.inputs.rows == rows


@pytest.mark.one_in(2)
def test_delta_spark_reads_and_writes_on_over_refreshed_entries(oracle, featured):
    feature, path = featured
    before = rows_of(oracle, feature, path)
    files = len(live_adds(path))

    report = open_table(path, engine="local").statistics(full=True)

    assert report.files_refreshed + report.files_unchanged == files
    assert_same_rows(rows_of(oracle, feature, path), before)
    if feature.delta_rs_reads:
        assert delta_rs_rows(path).num_rows == before.num_rows
    assert oracle.history(path)[0]["operation"] == "COMPUTE STATS"
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id = 50")
    assert oracle.rows(path, columns=["count(*) AS n"]) == [f'{{"n":{before.num_rows - 1}}}']
    assert oracle.rows(path, where="id = 1000", columns=["id"]) == expected_late_row(feature)
    assert_verified(path, rows=before.num_rows - 1)


def test_deleted_rows_bound_nothing_and_skip_more(oracle, tmp_path):
    [feature] = [one for one in FEATURED_TABLES if one.name == "deletion vectors"]
    path = tmp_path / "table"
    feature.provide(oracle, path)
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id > 40")
    left = oracle.rows(path)
    stale = oracle.files_read(path, where="id > 40")

    open_table(path, engine="local").statistics(full=True)

    assert len(stale) > 0
    assert oracle.files_read(path, where="id > 40") == []
    assert oracle.rows(path, where="id <= 40") == left


def test_a_stream_sees_nothing_of_it(oracle, tmp_path):
    [feature] = [one for one in FEATURED_TABLES if one.name == "change feed"]
    path, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    feature.provide(oracle, path)
    without_statistics(path)
    options = {"skipChangeCommits": "true"}
    assert len(oracle.stream(path, checkpoint, options=options)) > 0

    report = open_table(path, engine="local").statistics()

    assert oracle.stream(path, checkpoint, options=options) == []
    assert oracle.changes(path, starting_version=report.version) == []


def test_a_commit_of_delta_spark_has_no_proof_to_check(oracle, tmp_path):
    path = tmp_path / "table"
    oracle.write(path, "SELECT id FROM range(100)", files=4)
    oracle.sql(f"OPTIMIZE delta.`{path}`")

    report = open_table(path, engine="local").verify(version=1)

    assert (report.outcome, report.proofs[0].reason) == ("sound", "no_proof")
