"""What a plan expects, held against what the run then does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake

import lakehand
from lakehand.rewrite import forecast as rewrite_forecast
from support.copyable_tables import append_file, create, delete_rows
from support.small_tables import fingerprint

ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz "))


def events(number, count):
    """Ids that go up, values that repeat now and then."""
    chance = np.random.default_rng(number)
    ids = np.arange(number * 100_000, number * 100_000 + count)
    prices = chance.lognormal(3, 1, count).round(2)
    return pa.table({"id": ids, "price": prices, "quantity": chance.integers(1, 50, count)})


def sentences(number, count):
    """Long texts that are all different."""
    letters = np.random.default_rng(number).choice(ALPHABET, (count, 200))
    return pa.table({"id": np.arange(count), "text": ["".join(row) for row in letters]})


def noise(number, count):
    chance = np.random.default_rng(number)
    return pa.table({"a": chance.random(count), "b": chance.integers(0, 2**40, count)})


def make(path, maker, counts, *, codec="SNAPPY"):
    properties = WriterProperties(compression=codec)
    for number, count in enumerate(counts):
        write_deltalake(
            str(path), maker(number, count), mode="append", writer_properties=properties
        )
    return path


SHAPES = {
    "tiny files": (events, [20] * 40, "SNAPPY", "128MiB"),
    "tiny files in zstd": (events, [20] * 40, "ZSTD", "128MiB"),
    "small files": (events, [5_000] * 20, "ZSTD", "100KiB"),
    "mixed sizes": (events, [20, 3_000, 300, 9_000] * 5, "SNAPPY", "100KiB"),
    "wide strings": (sentences, [300] * 20, "ZSTD", "300KiB"),
    "noise": (noise, [4_000] * 20, "SNAPPY", "128MiB"),
}


def assert_as_forecast(table, plan, *, error=0.1):
    """Carry out `plan`; files as forecast, bytes within `error`."""
    before = table.snapshot().files

    report = table.compact(plan=plan)

    after = table.snapshot().files
    written = after.filter(~np.isin(after["path"], before["path"]))
    assert after.num_rows == report.files_after == plan.forecast.files_after
    assert sum(written["bytes"].to_pylist()) == pytest.approx(
        plan.forecast.bytes_written, rel=error
    )
    assert report.bytes_after == pytest.approx(plan.forecast.bytes_after, rel=error)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_comes_out_as_its_plan_said(tmp_path, shape):
    maker, counts, codec, target = SHAPES[shape]
    path = make(tmp_path / "table", maker, counts, codec=codec)
    table = lakehand.open_table(path, engine="local", target_file_bytes=target)
    rows = table.to_arrow()

    assert_as_forecast(table, table.plan(min_files=2))

    keys = [(name, "ascending") for name in rows.column_names]
    assert table.to_arrow().sort_by(keys).equals(rows.sort_by(keys))


def test_rows_that_are_deleted_are_not_forecast(tmp_path):
    handle = create(tmp_path / "table", events(0, 1).schema)
    for number in range(6):
        append_file(handle, events(number, 5_000))
        delete_rows(handle, number, range(0, 5_000, 3))
    table = lakehand.open_table(tmp_path / "table", engine="local")

    plan = table.plan()

    assert plan.forecast.bytes_written < 0.8 * plan.forecast.bytes_read
    assert_as_forecast(table, plan)


@pytest.mark.parametrize("target_file_bytes", ["256KiB", "128MiB"])
def test_a_part_of_the_work_tells_what_comes_of_all(tmp_path, target_file_bytes):
    """Some of the groups, or some files of the only one."""
    path = make(tmp_path / "table", events, [5_000] * 20)
    table = lakehand.open_table(path, engine="local", target_file_bytes=target_file_bytes)
    total = table.inspect().total_bytes

    assert_as_forecast(table, table.plan(rehearsed_bytes=total // 3))


def test_of_many_small_files_only_some_are_looked_into(tmp_path, monkeypatch):
    path = make(tmp_path / "table", events, [2_000] * 20)
    table = lakehand.open_table(path, engine="local")
    of_all = table.plan().forecast.bytes_written

    monkeypatch.setattr(rewrite_forecast, "_MOST_FILES", 14)
    plan = table.plan()
    (path / plan.groups[0].paths[-1]).write_bytes(b"unreadable")

    assert plan.forecast.bytes_written == pytest.approx(of_all, rel=0.1)
    assert table.plan().forecast == plan.forecast != table.plan(rehearsed_bytes=0).forecast


def test_nothing_is_tried_out_where_that_is_not_wanted(tmp_path):
    path = make(tmp_path / "table", noise, [4_000] * 10)
    table = lakehand.open_table(path, engine="local")
    before = fingerprint(tmp_path)

    estimated = table.plan(rehearsed_bytes=0)
    tried_out = table.plan()

    assert estimated.groups[0].paths == tried_out.groups[0].paths
    assert estimated.forecast.bytes_written != tried_out.forecast.bytes_written
    assert fingerprint(tmp_path) == before


def test_a_file_that_cannot_be_read_leaves_the_estimate(tmp_path):
    path = make(tmp_path / "table", events, [300] * 6)
    broken = next(path.glob("*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-100])
    table = lakehand.open_table(path, engine="local")

    assert table.plan().forecast == table.plan(rehearsed_bytes=0).forecast
