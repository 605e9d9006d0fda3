"""What `plan` expects of an order, and what then comes of it; the plan is carried out as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehand
from lakehand.cli.main import run
from lakehand.errors import ValidationError
from lakehand.planning.plan import Plan
from support.compactions import tasks_inline
from support.small_tables import fingerprint

TARGET = 60_000


@pytest.fixture(autouse=True)
def tasks_here():
    with tasks_inline():
        yield


def points(seed, *, rows=10_000, region="eu"):
    lot = np.random.default_rng(seed)
    numbers = {"x": lot.integers(0, 10**6, rows), "y": lot.normal(size=rows)}
    texts = [f"user-{number:05d}" for number in lot.integers(0, 10**5, rows)]
    return pa.table({**numbers, "name": texts, "region": pa.array([region] * rows)})


@pytest.fixture
def table(tmp_path):
    """A table of 40,000 points in four files, each over the whole square."""
    for seed in range(4):
        write_deltalake(tmp_path / "table", points(seed), mode="append")
    return lakehand.open_table(tmp_path / "table", engine="local", target_file_bytes=TARGET)


@pytest.mark.parametrize(
    ("by", "curve"), [("x, y", "hilbert"), ("name, x", "zorder"), ("y", "linear")]
)
def test_what_is_expected_comes_true(table, by, curve):
    plan = table.plan(by=by, curve=curve)
    report = table.cluster(by=by, curve=curve)

    assert (plan.operation, plan.curve) == ("cluster", curve)
    assert plan.layout.skip_rate.after == pytest.approx(report.skip_rate.after, abs=0.05)
    assert plan.layout.skip_rate.after > plan.layout.skip_rate.before + 0.3
    assert plan.layout.overlap_depth.before == report.overlap_depth.before
    assert plan.layout.overlap_depth.after == pytest.approx(report.overlap_depth.after, abs=0.5)
    assert plan.layout.sampled_rows == 40_000


def test_files_that_stay_count_as_they_are(table, tmp_path):
    table.cluster(by="x, y")
    write_deltalake(tmp_path / "table", points(9, rows=2_000), mode="append")

    plan = table.plan(by="x, y")
    report = table.cluster(by="x, y")

    assert plan.forecast.bytes_read < 0.1 * plan.forecast.bytes_before
    assert plan.layout.skip_rate.before == pytest.approx(report.skip_rate.before, abs=0.02)
    assert plan.layout.skip_rate.after == pytest.approx(report.skip_rate.after, abs=0.02)


def test_partitions_are_forecast_one_by_one(tmp_path):
    for seed, region in enumerate(["eu", "us"] * 2):
        rows = points(seed, region=region)
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["region"])
    table = lakehand.open_table(tmp_path / "t", engine="local", target_file_bytes=TARGET)

    plan = table.plan(by="x, name")
    report = table.cluster(by="x, name")

    assert len(plan.groups) == 2
    assert plan.layout.skip_rate.after == pytest.approx(report.skip_rate.after, abs=0.05)


def test_a_dry_run_says_what_is_expected_and_writes_nothing(table, tmp_path):
    before = fingerprint(tmp_path)

    report = table.cluster(by="x, y", dry_run=True)

    assert report.skip_rate == table.plan(by="x, y").layout.skip_rate
    assert fingerprint(tmp_path) == before


def test_nothing_is_tried_where_that_is_not_wanted(table):
    layout = table.plan(by="x, y", rehearsed_bytes=0).layout

    assert layout.sampled_rows == 0
    assert layout.skip_rate.after == layout.skip_rate.before


def test_a_file_that_cannot_be_read_does_not_stop_the_plan(table, tmp_path):
    broken = next((tmp_path / "table").glob("*.parquet"))
    broken.write_bytes(b"no file")

    assert table.plan(by="x, y").layout.sampled_rows == 0


def test_a_compaction_forecasts_no_order(table):
    assert table.plan(target_file_bytes="1GiB").layout is None


def test_a_stored_plan_is_carried_out_by_its_own_verb(table):
    plan = Plan.from_text(table.plan(by="x, y").to_text())

    with pytest.raises(ValidationError, match="plan for `cluster`"):
        table.compact(plan=plan)
    report = table.cluster(plan=plan)

    assert (report.outcome, report.columns, report.curve) == ("committed", ("x", "y"), "hilbert")
    assert report.skip_rate.before == plan.layout.skip_rate.before
    assert table.plan(by="x, y").groups == ()


def test_an_order_is_not_planned_for_a_compaction(table):
    with pytest.raises(ValidationError, match="by says what to cluster"):
        table.plan(operation="compact", by="x")


def test_a_plan_of_an_earlier_version_of_the_document_has_no_forecast(table):
    document = replace(table.plan(by="x"), layout=None).to_json()
    del document["layout"]

    assert Plan.from_json(document).layout is None


def test_the_command_shows_what_is_expected(table, tmp_path, capsys):
    words = ["plan", table.url, "--by", "x,y", "--target-file-size", str(TARGET)]
    stored = tmp_path / "plan.json"

    assert run([*words, "--output", str(stored)]) == 0
    screen = capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(["cluster", table.url, "--plan", str(stored), "--engine", "local"]) == 0

    assert "x, y (hilbert)" in screen
    assert "% → about" in screen
    assert f"lakehand cluster {table.url} --plan {stored}" in screen
    assert document["layout"]["skip_rate"]["after"] > 0.5
    assert document["operation"] == "cluster"
