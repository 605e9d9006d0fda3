"""The layout of a table of many files is measured in about the time it takes to read its log."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import lakehand

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

FILES = 200_000


@pytest.fixture
def table(tmp_path):
    from large_log import make_log

    return lakehand.open_table(make_log(tmp_path, file_count=FILES))


def _cpu_seconds(work):
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def test_measuring_a_layout_costs_little_beside_reading_the_log(table):
    table.snapshot(statistics=["id", "amount"])
    _, reading = _cpu_seconds(lambda: table.snapshot(statistics=["id", "amount"]))

    report, inspecting = _cpu_seconds(lambda: table.inspect(by=["id", "amount"]))

    ids, amounts = report.layout.by_column
    assert (ids.overlap_depth, amounts.overlap_depth) == (1, report.file_count)
    assert (ids.skip_rate > 0.9, amounts.skip_rate) == (True, 0)
    assert inspecting < 6 * reading
