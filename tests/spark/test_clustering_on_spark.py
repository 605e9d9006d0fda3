"""Rows put in order by many tasks, with Spark's own shuffle in between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehand.errors import CorruptFileError
from support import spark_compactions
from support.rows import delta_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]


@pytest.fixture
def place(tmp_path):
    """Points in no order, in four files."""
    for seed in range(4):
        lot = np.random.default_rng(seed)
        x, y = (lot.integers(0, 10_000, 4_000) for _ in "xy")
        write_deltalake(tmp_path / "table", pa.table({"x": x, "y": y}), mode="append")
    return tmp_path / "table"


def rows_of(place):
    return DeltaTable(place).to_pyarrow_table().sort_by([("x", "ascending"), ("y", "ascending")])


@pytest.mark.only_on("spark", "cluster", "connect")
def test_rows_that_were_shuffled_are_the_same_and_in_order(host, place):
    rows = rows_of(place)

    report = host.call(spark_compactions.cluster_by_shuffle, place, "x, y", seconds=240)

    assert (report["methods"]["sort"], report["proof"]["rows"]) == (1, 16_000)
    assert report["files_after"] > 4
    assert report["overlap_depth"]["after"] < 2.5
    assert rows_of(place).equals(rows)


@pytest.mark.only_on("spark")
def test_a_file_that_cannot_be_read_stops_it_and_leaves_nothing(host, place):
    broken = next(place.glob("*.parquet"))
    content = bytearray(broken.read_bytes())
    content[50:5_000] = bytes(4_950)
    broken.write_bytes(content)
    version = delta_table(place).snapshot().version

    with pytest.raises(CorruptFileError):
        host.call(spark_compactions.cluster_by_shuffle, place, "x, y", seconds=240)

    assert delta_table(place).snapshot().version == version
    assert len(list(place.glob("*.parquet"))) == 4
