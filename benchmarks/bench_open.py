"""Open a table with a million files, inspect it and list its small files, beside delta-rs.

The goal is at most a third of the time in which delta-rs opens the same table, below 1 GB. Only the
ratio means something: both are measured in one run, on one machine.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from large_log import make_log
from measure import Case, Measurement, measure

ROOT = Path(__file__).parent.parent
FILES = int(os.environ.get("LAKEHAND_BENCH_FILES", "1000000"))
RUNS = int(os.environ.get("LAKEHAND_BENCH_RUNS", "5"))
RESULTS = ROOT / "benchmarks" / "results" / "open.json"
GOAL_RATIO, GOAL_MIB = 1 / 3, 1024


def main() -> None:
    table = make_log(ROOT / ".cache" / "bench", file_count=FILES)
    found = measure(cases(table), runs=RUNS)
    peer = found[-1]
    for measured in found:
        print(line(measured, peer))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(measured) for measured in found], indent=2) + "\n")
    is_met = all(meets_goal(ours, peer) for ours in found[:-1])
    sys.exit(0 if is_met else "the goal is missed")


def cases(table: Path) -> list[Case]:
    # Imports are left out of both: a process that works on many tables pays for them once.
    modules = "lakehand.table, lakehand.formats.delta.table"
    ours = f"import lakehand, {modules}; place = {str(table)!r}"
    # Arrow loads pandas when it meets the first plain number.
    computing = f"{ours}; import pandas, pyarrow.compute as pc"
    opened = "table = lakehand.open_table(place)"
    small = (
        "files = table.snapshot().files.select(['path', 'bytes', 'rows']); "
        "files.filter(pc.less(files['bytes'], 64 * 2**20))"
    )
    theirs = f"from deltalake import DeltaTable; place = {str(table)!r}"
    return [
        Case(name="lakehand open", setup=ours, work=f"{opened}; table.snapshot()"),
        Case(name="lakehand inspect", setup=ours, work=f"{opened}; table.inspect()"),
        Case(name="lakehand small files", setup=computing, work=f"{opened}; {small}"),
        Case(name="delta-rs open", setup=theirs, work="DeltaTable(place)"),
    ]


def line(measured: Measurement, peer: Measurement) -> str:
    ratio = measured.median_seconds / peer.median_seconds
    return (
        f"{measured.name:22} median {measured.median_seconds:6.2f} s   worst "
        f"{measured.worst_seconds:6.2f} s   cpu {measured.median_cpu_seconds:6.2f} s   "
        f"peak {measured.peak_mib:5.0f} MiB   "
        f"{ratio:5.2f} of delta-rs"
    )


def meets_goal(ours: Measurement, peer: Measurement) -> bool:
    is_fast = ours.median_seconds <= GOAL_RATIO * peer.median_seconds
    return is_fast and ours.peak_mib < GOAL_MIB


if __name__ == "__main__":
    main()
