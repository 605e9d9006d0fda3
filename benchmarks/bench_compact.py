"""Compaction beside its peers, in one run: lineitem of TPC-H as three tables that need it.

Every contender works in a warm process of its own; all take turns, each time on a fresh copy of the
table. A full run stores its results and renews the tables and the picture of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import tpch
from contest import Contender, ContenderError, compete
from outcomes import Report
from publish import publish, tables

if TYPE_CHECKING:
    from tpch import Workload

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "bench"
CONTENDERS = ("lakehand-spark", "lakehand-local", "delta-rs", "delta-spark", "duckdb", "bytes")
PUBLISHED = ROOT / "benchmarks" / "results" / "compact.json"
#: Of the last run, whole or not, small or not.
PARTIAL = PUBLISHED.with_name("compact-partial.json")
WORKLOADS = ("large", "tiny", "deleted")
MINIMUM_RUNS = 5
_PACKAGES = ("lakehand", "pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "tpchgen-cli")


def main() -> None:
    chosen = _options()
    CACHE.mkdir(parents=True, exist_ok=True)
    report = Report.read(PUBLISHED) if chosen.draw else _measure(chosen)
    print(tables(report))
    if report.scale != tpch.FULL_SCALE:
        print(f"The goals are for scale {tpch.FULL_SCALE:g}; this run cannot judge them.")
    if is_full(report):
        report.write(PUBLISHED)
        publish(report, ROOT / "docs")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=tpch.FULL_SCALE, help="of TPC-H; full: 5")
    parser.add_argument("--runs", type=int, default=MINIMUM_RUNS, help="of each contender")
    parser.add_argument("--spark-runs", type=int, help="of delta-spark, where five take too long")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--peers", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return parser.parse_args()


def is_full(report: Report) -> bool:
    """Say whether these results may stand in the documentation."""
    wanted = [(workload, set(CONTENDERS)) for workload in WORKLOADS]
    found = [(one.name, {result.name for result in one.results}) for one in report.comparisons]
    is_often = all(
        len(result.runs) >= MINIMUM_RUNS or result.name == "delta-spark" or result.error
        for comparison in report.comparisons
        for result in comparison.results
    )
    return report.scale == tpch.FULL_SCALE and found == wanted and is_often


def _measure(chosen: argparse.Namespace) -> Report:
    load = os.getloadavg()[0]
    runs = dict.fromkeys(chosen.peers, chosen.runs)
    if chosen.spark_runs and "delta-spark" in runs:
        runs["delta-spark"] = chosen.spark_runs
    report = Report(
        taken_on=datetime.now(UTC).date().isoformat(),
        scale=chosen.scale,
        machine=_machine(load),
        versions={name: version(name) for name in _PACKAGES},
        comparisons=(),
    )
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(_scratch_directory()))
        workloads = _make(chosen, scratch)
        contenders = _start(stack, [name for name in CONTENDERS if name in runs], scratch)
        contest = partial(compete, contenders=contenders, scratch=scratch)
        contest(tpch.warm_up(CACHE), runs=dict.fromkeys(runs, 1))
        for workload in workloads:
            done = (*report.comparisons, contest(workload, runs=runs))
            report = replace(report, comparisons=done)
            report.write(PARTIAL)
    return report


def _scratch_directory() -> TemporaryDirectory[str]:
    # A JVM that is ending may still tidy up in it, and results must not be lost for that.
    return TemporaryDirectory(prefix="contest-", dir=CACHE, ignore_cleanup_errors=True)


def _make(chosen: argparse.Namespace, scratch: Path) -> list[Workload]:
    """Return the workloads asked for; one that cannot be made is left out, with a word."""
    makers = {
        "large": tpch.large,
        "tiny": tpch.tiny,
        "deleted": partial(tpch.deleted, make=partial(_delete, scratch)),
    }
    workloads = []
    for name in (name for name in WORKLOADS if name in chosen.only):
        try:
            workloads.append(makers[name](CACHE, chosen.scale))
        except ContenderError as error:
            print(f"{name} cannot be made: {error}", file=sys.stderr)
    return workloads


def _delete(scratch: Path, sources: list[Path], target: Path) -> None:
    with Contender("delta-spark", scratch) as delta_spark:
        delta_spark.ask("make_deleted", sources=[str(path) for path in sources], table=str(target))


def _start(stack: ExitStack, names: list[str], scratch: Path) -> list[Contender]:
    """Start those that can; without Java some cannot, and say so."""
    contenders = []
    for name in names:
        try:
            contenders.append(stack.enter_context(Contender(name, scratch)))
        except ContenderError as error:
            print(f"{name} cannot take part: {error}", file=sys.stderr)
    return contenders


def _machine(load: float) -> dict[str, float]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "load_before": round(load, 1),
    }


if __name__ == "__main__":
    main()
