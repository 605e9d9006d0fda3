"""A delta-rs process writes without a pause while vacuum runs again and again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

from lakehand.formats.delta.table import DeltaTable
from lakehand.retention.vacuum import vacuum
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.later_vacuums import data_files
from support.rows import lakehand_rows

COMMITS = 30
#: What vacuum believes its retention to be, less this, is how far its clock is ahead. More than the
#: writer takes on a busy machine: what it removes would be vacuumed too.
YOUNG_SECONDS = 200
WRITER = """
import sys
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
for number in range(int(sys.argv[2])):
    data = pa.table({"id": pa.array([number], pa.int64()), "p": [f"p {number % 3}"]})
    write_deltalake(sys.argv[1], data, mode="append")
    if number % 10 == 5:
        DeltaTable(sys.argv[1]).optimize.compact()
    if number % 10 == 8:
        DeltaTable(sys.argv[1]).delete(f"id = {number - 1}")
"""


class ClockAhead:
    """The machine's clock, so far ahead that files are old after some minutes."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1, seconds=-YOUNG_SECONDS)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def make_old(path, *names) -> None:
    past = time.time() - 3600
    for name in names:
        os.utime(path / name, (past, past))


def vacuum_now(path) -> int:
    clock = ClockAhead()
    settings = {"retention": "1h", "allow_short_retention": True, "grace": "0"}
    table = DeltaTable(open_store(path), clock=clock)
    chosen = Settings({**settings, "vacuum_entries": "never"}, environment={})
    return vacuum(table, settings=chosen, clock=clock).files_deleted


def test_a_delta_rs_process_that_writes_all_the_time_loses_nothing(oracle, tmp_path):
    path = tmp_path / "t"
    first = pa.table({"id": pa.array(range(1000, 1010), pa.int64()), "p": ["p 0"] * 10})
    write_deltalake(str(path), first, partition_by=["p"])
    make_old(path, *data_files(path))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(COMMITS)])
    deleted = rounds = 0
    while writer.poll() is None:
        (path / f"orphan-{rounds}.parquet").touch()
        make_old(path, f"orphan-{rounds}.parquet")
        deleted += vacuum_now(path)
        rounds += 1
    assert writer.wait() == 0
    assert rounds > 1
    assert deleted == rounds
    expected = {*range(COMMITS), *range(1000, 1010)} - set(range(7, COMMITS, 10))
    assert sorted(lakehand_rows(path)["id"].to_pylist()) == sorted(expected)
    assert sorted(DeltaRsTable(str(path)).to_pyarrow_table()["id"].to_pylist()) == sorted(expected)
    assert len(oracle.rows(path)) == len(expected)
