"""Processes of our own load no more than they need: pandas never, Arrow only to decode rows."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
from deltalake import write_deltalake

from lakehand.engine import LocalRunner
from lakehand.engine.local_worker import end_idle_workers
from lakehand.formats.worker import WriteSpec
from lakehand.rewrite.copy import GroupTask
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run
from lakehand.settings import Settings
from support.rows import delta_table
from support.tasks import loaded_after_a_list

LATER = """
import sys
import pyarrow as pa
from lakehand.engine.import_guard import leave_pandas_out
leave_pandas_out()
rows = pa.table({"a": [1, None]})
assert "pandas" not in sys.modules
frame = rows.to_pandas()
assert pa.Table.from_pandas(frame)["a"].to_pylist() == [1, None]
assert pa.array(frame["a"]).null_count == 1
"""
BEFORE = """
import sys
from lakehand.engine.import_guard import leave_pandas_out
leave_pandas_out()
assert "pyarrow" not in sys.modules
import pyarrow as pa
assert pa.array([1, None]).null_count == 1 and "pandas" not in sys.modules
assert pa.__spec__.loader is pa.__loader__ and pa.__loader__.get_source("pyarrow")
assert pa.table({"a": [1]}).to_pandas()["a"].to_list() == [1]
"""
MOVING = """
import pickle
import sys
from pathlib import Path
import lakehand.engine.worker
task, payloads = pickle.loads(Path(sys.argv[1]).read_bytes())
results = [task(payload) for payload in payloads]
assert [result["method"] for result in results] == ["copy"], results
loaded = {"pyarrow", "numpy", "duckdb", "pandas", "obstore"} & set(sys.modules)
assert not loaded, loaded
"""
COMMAND = """
import sys
from lakehand.cli.main import run
assert run(["inspect", sys.argv[1]]) == 0
assert run(["compact", sys.argv[1], "--engine", "local", "--min-files", "2"]) == 0
assert "pandas" not in sys.modules and "sqlglot" not in sys.modules
"""

SPARK = """
import sys
from pyspark.sql.types import LongType, StructField, StructType
from lakehand.spark import LakehandSource
schema = StructType([StructField("id", LongType())])
LakehandSource({"path": sys.argv[1]}).writer(schema, overwrite=False)
loaded = {"pandas", "lakehand.rewrite.run", "lakehand.retention.vacuum"} & set(sys.modules)
assert not loaded, loaded
"""


def ended_well(script, *arguments):
    """Run a script in a process of its own, whose assertions are those of the test."""
    return subprocess.run([sys.executable, "-c", script, *arguments], check=False).returncode == 0


def test_conversions_find_pandas_when_they_need_it():
    assert ended_well(LATER)


def test_arrow_finds_no_pandas_whenever_it_is_loaded():
    assert ended_well(BEFORE)


def test_a_task_that_moves_row_groups_loads_neither_arrow_nor_duckdb(tmp_path):
    for number in range(5):
        rows = pa.table({"a": range(number * 110_000, (number + 1) * 110_000)})
        write_deltalake(tmp_path / "table", rows, mode="append")
    work = prepare(
        make_plan(delta_table(tmp_path / "table"), Settings({}, environment={}), Request())
    )
    run = Run.start(work.table.store, {}, snapshot=work.snapshot)
    spec = WriteSpec.of_tasks(work.settings)
    worker = work.table.worker(work.snapshot)
    task = GroupTask.of(RewriteTask(worker=worker, run=run, spec=spec), worker)
    payloads = [{"group": group.to_json()} for group in work.groups]
    (tmp_path / "task").write_bytes(pickle.dumps((task, payloads)))

    assert ended_well(MOVING, tmp_path / "task")
    assert [result.proof.rows for result in run.results()] == [550_000]


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


def test_a_write_on_spark_is_planned_without_what_maintains_tables(tmp_path):
    assert ended_well(SPARK, str(tmp_path / "table"))
