"""Rows put in order: all of them are there, files are narrow, and what is in order stays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehand

TARGET = 60_000


def points(rows, *, seed=0):
    """Return rows spread over a square, with a payload."""
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, 10_000, rows) for _ in "xy")
    texts = pa.array([f"payload {number}" for number in random.integers(0, 10**9, rows)])
    return pa.table({"x": x, "y": y, "payload": texts})


def rows_of(table):
    keys = [(name, "ascending") for name in table.snapshot().schema.names]
    return table.to_arrow().sort_by(keys)


@pytest.fixture
def table(tmp_path):
    """A table of 40,000 points in four files, each over the whole square."""
    path = tmp_path / "table"
    for seed in range(4):
        write_deltalake(path, points(10_000, seed=seed), mode="append")
    return lakehand.open_table(path, engine="local", target_file_bytes=TARGET)


@pytest.mark.parametrize("curve", ["hilbert", "zorder", "linear"])
def test_rows_are_the_same_and_files_are_narrow(table, curve):
    rows = rows_of(table)

    report = table.cluster(by=["x", "y"], curve=curve)

    assert (report.outcome, report.methods.sort, report.proof.rows) == ("committed", 1, 40_000)
    assert rows_of(table).equals(rows)
    assert report.overlap_depth.after < 2.5 < report.overlap_depth.before
    assert report.skip_rate.after > 0.4 > report.skip_rate.before


def test_a_second_run_finds_nothing_to_do(table):
    table.cluster(by="x, y")
    version = table.snapshot().version

    report = table.cluster(by="x, y")

    assert (report.outcome, table.snapshot().version) == ("nothing_to_do", version)
    assert report.skip_rate.before == report.skip_rate.after


@pytest.mark.parametrize("curve", ["hilbert", "linear"])
@pytest.mark.parametrize("prove", ["digest", "independent", "counts"])
def test_many_tasks_write_what_one_would(table, curve, prove):
    rows = rows_of(table)

    report = table.cluster(by=["x", "y"], curve=curve, sort_task_bytes=0, prove=prove)

    assert (report.methods.sort, report.proof.rows) == (1, 40_000)
    assert rows_of(table).equals(rows)
    assert report.overlap_depth.after < 2.5
    assert table.cluster(by=["x", "y"], curve=curve).outcome == "nothing_to_do"
