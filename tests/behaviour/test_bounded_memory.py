"""A task keeps to its memory and its scratch, however large the table is."""

from __future__ import annotations

import sys

import deltalake
import duckdb
import pytest

import lakehand
from support.large_tables import LINEITEM, WIDE, make_large
from support.worker_memory import WorkerWatch, idle_worker_bytes

MIB = 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def sums(table) -> tuple:
    """Return numbers that every value of the table has a part in, not computed by lakehand."""
    files = deltalake.DeltaTable(str(table)).file_uris()
    [found] = duckdb.sql(
        f"SELECT count(*), sum(hash(r)) FROM read_parquet({files}) AS r"
    ).fetchall()
    return found


def watched(table, scratch, verb, *, memory: str, **wish):
    scratch.mkdir()
    chosen = {"engine": "local", "task_memory_bytes": memory, "scratch_directory": str(scratch)}
    with WorkerWatch(scratch) as watch:
        opened = lakehand.open_table(str(table), **chosen)
        report = getattr(opened, verb)(**wish)
    return report, watch


def compact_watched(table, scratch, *, memory: str):
    return watched(table, scratch, "compact", memory=memory, target_file_bytes="256MiB")


@pytest.mark.parametrize(
    ("columns", "files", "rows_a_file"),
    [(LINEITEM, 400, 12_500), (WIDE, 100, 400)],
    ids=["lineitem", "wide"],
)
@pytest.mark.one_in(2)
def test_a_task_of_256_mb_compacts_a_table_of_400_mb(tmp_path, columns, files, rows_a_file):
    table = make_large(tmp_path / "table", columns, files=files, rows_a_file=rows_a_file)
    before = sums(table)

    report, watch = compact_watched(table, tmp_path / "scratch", memory="256MiB")

    assert report.bytes_before > 350 * MIB
    assert report.files_after <= 3
    assert report.methods.recode == report.groups.committed
    assert report.bytes_after <= 1.02 * report.bytes_before
    assert sums(table) == before
    assert 64 * MIB < watch.peak_bytes < 256 * MIB + idle_worker_bytes()
    assert watch.peak_scratch_bytes < 64 * MIB


@pytest.mark.soak
@pytest.mark.parametrize(
    ("columns", "files", "rows_a_file", "wish"),
    [
        (LINEITEM, 40, 125_000, {"by": "shipdate, partkey"}),
        (WIDE, 100, 400, {"by": "id", "curve": "linear"}),
    ],
    ids=["lineitem", "wide"],
)
def test_a_task_of_256_mb_puts_a_table_of_400_mb_in_order(
    tmp_path, columns, files, rows_a_file, wish
):
    table = make_large(tmp_path / "table", columns, files=files, rows_a_file=rows_a_file)
    before = sums(table)

    report, watch = watched(table, tmp_path / "scratch", "cluster", memory="256MiB", **wish)

    assert report.bytes_before > 350 * MIB
    assert (report.methods.sort, report.rows_written) == (1, files * rows_a_file)
    assert sums(table) == before
    assert 64 * MIB < watch.peak_bytes < 256 * MIB + idle_worker_bytes()
    # More than memory holds waits on disk, each row at most once.
    assert 100 * MIB < watch.peak_scratch_bytes < 3 * report.bytes_before


@pytest.mark.soak
def test_a_task_of_1_gb_compacts_a_table_of_4_gb(tmp_path):
    table = make_large(tmp_path / "table", LINEITEM, files=4_000, rows_a_file=12_500)
    before = sums(table)

    report, watch = compact_watched(table, tmp_path / "scratch", memory="1GiB")

    assert report.rows_written == 50_000_000
    assert sums(table) == before
    assert 64 * MIB < watch.peak_bytes < 1024 * MIB + idle_worker_bytes()
