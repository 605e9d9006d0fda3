"""Compact a thousand small files into one, beside delta-rs and a plain COPY of DuckDB.

The goals are at most 1.5 times the COPY and half the time of delta-rs, proof included. Only the
ratios mean something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from lineitem import make_lineitem
from measure import Case, Measurement, measure

ROOT = Path(__file__).parent.parent
FILES = int(os.environ.get("LAKEHAND_BENCH_FILES", "1000"))
ROWS = int(os.environ.get("LAKEHAND_BENCH_ROWS", "10000000"))
RUNS = int(os.environ.get("LAKEHAND_BENCH_RUNS", "5"))
RESULTS = ROOT / "benchmarks" / "results" / "recode.json"
GOAL_OF_COPY, GOAL_OF_DELTA_RS = 1.5, 1 / 2

# Each run works on a tree of links to the same files, which no case changes.
_COPY = """
import os, pathlib, shutil, tempfile
scratch = tempfile.TemporaryDirectory(dir={parent!r})
place = os.path.join(scratch.name, "table")
shutil.copytree({table!r}, place, copy_function=os.link)
"""
# The tasks run in the measured process, so that their work and memory are counted.
_LAKEHAND = """
sys.path.insert(0, {tests!r})
import lakehand.formats.delta.worker
from lakehand.rewrite import run as rewrite_run
from lakehand.engine.runner_contract import usable_cores
from lakehand.settings import Settings
from support.compactions import InlineRunner, open_table
InlineRunner.cores = usable_cores()
rewrite_run.open_runner = lambda *_, **__: InlineRunner()
settings = Settings({{"engine": "local", "target_file_bytes": "1GiB"}}, environment={{}})
"""
# Its progress bar would stand between the results.
_DUCKDB = "import duckdb; duckdb.execute('SET enable_progress_bar = false')"
_DUCKDB_WORK = """
duckdb.execute(f"COPY (FROM '{place}/*.parquet') TO '{place}/all.parquet' (COMPRESSION snappy)")
"""


def main() -> None:
    table = make_lineitem(ROOT / ".cache" / "bench", files=FILES, rows=ROWS)
    ours, copy, delta_rs = measure(cases(table), runs=RUNS)
    for measured in (ours, copy, delta_rs):
        print(line(measured, copy))
    RESULTS.parent.mkdir(exist_ok=True)
    found = [asdict(measured) for measured in (ours, copy, delta_rs)]
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(0 if meets_goals(ours, copy, delta_rs) else "a goal is missed")


def cases(table: Path) -> list[Case]:
    copied = _COPY.format(parent=str(table.parent), table=str(table))
    lakehand = _LAKEHAND.format(tests=str(ROOT / "tests"))
    compact = "DeltaTable(place).optimize.compact(target_size=2**30)"
    return [
        Case(
            name="lakehand compact",
            setup=copied + lakehand,
            work="maintain.compact(open_table(place), settings=settings)",
        ),
        Case(name="DuckDB COPY", setup=copied + _DUCKDB, work=_DUCKDB_WORK),
        Case(
            name="delta-rs compact", setup=copied + "from deltalake import DeltaTable", work=compact
        ),
    ]


def line(measured: Measurement, copy: Measurement) -> str:
    ratio = measured.median_seconds / copy.median_seconds
    cpu_ratio = measured.median_cpu_seconds / copy.median_cpu_seconds
    return (
        f"{measured.name:18} median {measured.median_seconds:6.2f} s   worst "
        f"{measured.worst_seconds:6.2f} s   cpu {measured.median_cpu_seconds:6.2f} s   "
        f"peak {measured.peak_mib:5.0f} MiB   {ratio:5.2f} of COPY ({cpu_ratio:.2f} in cpu)"
    )


def meets_goals(ours: Measurement, copy: Measurement, delta_rs: Measurement) -> bool:
    seconds = ours.median_seconds
    return (
        seconds <= GOAL_OF_COPY * copy.median_seconds
        and seconds <= GOAL_OF_DELTA_RS * delta_rs.median_seconds
    )


if __name__ == "__main__":
    main()
