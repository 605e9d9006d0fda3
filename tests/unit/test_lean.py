"""Processes of our own do without pandas, which Arrow would load for the first list it is given."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
from deltalake import write_deltalake

from lakehand.engine import LocalRunner
from lakehand.engine.local_worker import end_idle_workers
from support.tasks import loaded_after_a_list

LATER = """
import sys
import pyarrow as pa
from lakehand.engine.lean import leave_pandas_out
leave_pandas_out()
rows = pa.table({"a": [1, None]})
assert "pandas" not in sys.modules
frame = rows.to_pandas()
assert pa.Table.from_pandas(frame)["a"].to_pylist() == [1, None]
assert pa.array(frame["a"]).null_count == 1
"""
COMMAND = """
import sys
from lakehand.cli.main import run
assert run(["inspect", sys.argv[1]]) == 0
assert run(["compact", sys.argv[1], "--engine", "local", "--min-files", "2"]) == 0
assert "pandas" not in sys.modules
"""


def ended_well(script, *arguments):
    """Run a script in a process of its own, whose assertions are those of the test."""
    return subprocess.run([sys.executable, "-c", script, *arguments], check=False).returncode == 0


def test_conversions_find_pandas_when_they_need_it():
    assert ended_well(LATER)


def test_a_command_loads_no_pandas(tmp_path):
    for number in range(2):
        write_deltalake(tmp_path / "table", pa.table({"a": [number]}), mode="append")

    assert ended_well(COMMAND, tmp_path / "table")


def test_a_worker_loads_no_pandas():
    end_idle_workers()
    with LocalRunner(parallelism=1) as runner:
        [outcome] = runner.run(loaded_after_a_list, [{}])

    assert "pandas" not in outcome.result["modules"]
    assert "pyarrow" in outcome.result["modules"]
