"""Write rows into a local table, beside delta-rs and delta-spark; then commits, one by one.

Goals: 200,000 rows a second; an epoch of 1,000 rows, written, synced and committed, in 25 ms on
local disk on a quiet machine, in 50 ms on a busy one, and in 500 ms on an S3 server, at the median;
and below 5 s until a sink that is started again knows where it stopped. Only the ratio to the
others means something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contest import Contender, ContenderError
from sections import ROOT, Section, circumstances, in_words

if TYPE_CHECKING:
    from pathlib import Path

CONTENDERS = ("lakehand-local", "lakehand-source", "delta-rs", "delta-spark", "spark-rows")
LABELS = {
    "lakehand-local": "**lakehand** `TableSink`",
    "lakehand-source": 'lakehand, Spark `format("lakehand")`',
    "delta-rs": "delta-rs `write_deltalake`",
    "delta-spark": "delta-spark `append`",
    "spark-rows": "Spark hands rows to Python (`mapInArrow`), which counts them",
}
#: It writes no table.
LIMIT = "spark-rows"
FULL_ROWS = 4_000_000
EPOCHS = 4
COMMITS = 200
#: Epochs before those that are measured, in which everything is loaded.
WARM_COMMITS = 20
#: A machine with more runnable processes than this for each of its cores is busy.
BUSY = 1.0
GOALS = {
    "rows_per_second": 200_000,
    "quiet_ms": 25,
    "busy_ms": 50,
    "s3_ms": 500,
    "recovery_s": 5,
}


def main() -> None:
    chosen = _arguments()
    if chosen.only_commits:
        found = SECTION.kept() | measure_commits(chosen)
        SECTION.keep(found, is_full=True)
    elif not chosen.draw:
        found = measure(chosen)
        is_full = chosen.rows >= FULL_ROWS and set(found["results"]) == set(CONTENDERS)
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    sys.exit(0 if meets_goals(found) else "a goal is missed")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows)
    options.add_argument("--contenders", default=",".join(CONTENDERS))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--commits", type=int, default=COMMITS)
    options.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    options.add_argument("--only-commits", action="store_true", help="measure epochs alone")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict:
    """Let the contenders write in turns, and then commit alone."""
    around = circumstances()
    scratch = ROOT / ".cache" / "bench" / "sink"
    shutil.rmtree(scratch, ignore_errors=True)
    sources = make_sources(scratch / "source", chosen.rows)
    names = chosen.contenders.split(",")
    results: dict[str, dict] = {name: {"runs": []} for name in names}
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(Contender(name, scratch, timeout_seconds=chosen.timeout))
            for name in names
        ]
        for _ in range(1 + chosen.runs):  # the first one warms up
            for contender in contenders:
                _run(contender, results[contender.name], scratch / "table", sources)
        for result in results.values():
            del result["runs"][:1]
    return {
        **around,
        "rows": chosen.rows,
        "results": results,
        **measure_commits(chosen),
    }


def measure_commits(chosen: argparse.Namespace) -> dict:
    """Let lakehand alone commit small epochs, and say under which load."""
    scratch = ROOT / ".cache" / "bench" / "sink"
    shutil.rmtree(scratch / "commits", ignore_errors=True)
    around = circumstances()
    with Contender("lakehand-local", scratch, timeout_seconds=chosen.timeout) as committing:
        commits = _commits(committing, scratch, chosen.commits)
    return {"commits": commits, "commits_around": around}


def make_sources(folder: Path, rows: int) -> list[str]:
    """Write rows of a plausible stream, one file an epoch."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(7)
    paths = []
    for epoch in range(EPOCHS):
        count = rows // EPOCHS
        started = np.datetime64("2026-01-01T00:00:00", "us")
        columns = {
            "id": np.arange(epoch * count, (epoch + 1) * count),
            "at": started + np.sort(chance.integers(0, 86_400_000_000, count)),
            "device": chance.integers(0, 5_000, count).astype(np.int32),
            "city": np.array(["Oslo", "Lima", "Pune", "Kyiv"])[chance.integers(0, 4, count)],
            "x": chance.normal(size=count),
            "y": chance.normal(size=count).round(2),
        }
        data = pa.table(columns)
        at = data["at"].cast(pa.timestamp("us", tz="UTC"))
        paths.append(str(folder / f"{epoch}.parquet"))
        pq.write_table(data.set_column(1, "at", at), paths[-1], compression="none")
    return paths


def _run(contender: Contender, result: dict, place: Path, sources: list[str]) -> None:
    if "error" in result:
        return
    shutil.rmtree(place, ignore_errors=True)
    os.sync()
    try:
        measured, report = contender.ask("append", table=str(place), sources=sources)
    except ContenderError as error:
        result["error"] = str(error).partition("\n")[0]
        print(f"{contender.name:15} {result['error']}")
        return
    rows = sum(pq.read_metadata(path).num_rows for path in sources)
    if contender.name != LIMIT:
        _check_rows(contender, place, rows)
    result["runs"].append(asdict(measured) | {"rows_per_second": rows / report["seconds"]})
    result["bytes"] = sum(path.stat().st_size for path in place.rglob("*.parquet"))
    print(
        f"{contender.name:15} {report['seconds']:6.2f} s   cpu {measured.cpu_seconds:6.2f} s   "
        f"peak {measured.peak_mib:5} MiB   {rows / report['seconds']:10,.0f} rows/s",
        flush=True,
    )


def _check_rows(contender: Contender, place: Path, rows: int) -> None:
    """Stop if the new table does not hold what was written: then its time means nothing."""
    files = [path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts]
    found = sum(pq.read_metadata(path).num_rows for path in files)
    if found != rows:
        raise SystemExit(f"{contender.name} wrote {found:,} of {rows:,} rows")


def _commits(contender: Contender, scratch: Path, commits: int) -> dict:
    """Commit small epochs one after the other, on disk and on an S3 server, and start again."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.s3_server import BINARY, run_s3_server

    counts = {"commits": commits, "warm_commits": WARM_COMMITS}
    _, local = contender.ask("commit", table=str(scratch / "commits"), **counts)
    found = {"local": local}
    if BINARY.exists():
        with run_s3_server(scratch / "s3") as server:
            uri, options = server.new_uri(), server.options
            _, found["s3"] = contender.ask("commit", table=uri, options=options, **counts)
    return found


def table(found: dict) -> str:
    """Return the results as Markdown."""
    ours = _speed(found["results"].get("lakehand-local", {}))
    lines = [
        in_words(found, f"{found['rows']:,} rows in {EPOCHS} commits"),
        "",
        "| | rows/s, median | worst | lakehand against it | CPU s | peak MiB |",
        "|---|---:|---:|---:|---:|---:|",
        *(_row(name, result, ours) for name, result in found["results"].items()),
        "",
        in_words(found["commits_around"], "epochs of 1,000 rows, one after the other"),
        "",
        _COMMIT_TITLES,
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_commit_row(place, one) for place, one in found["commits"].items()]
    return "\n".join(lines)


_COMMIT_TITLES = (
    "| lakehand, 1,000 rows | whole epoch, median ms | p99 ms | CPU ms | commit alone, median ms |"
    " p99 ms | restart, s |"
)


def _commit_row(place: str, one: dict) -> str:
    epoch, commit = one["epoch"], one["commit"]
    return (
        f"| {place} | {epoch['median_ms']:.1f} | {epoch['p99_ms']:.1f} | {one['epoch_cpu_ms']:.1f}"
        f" | {commit['median_ms']:.1f} | {commit['p99_ms']:.1f} | {one['recovery_s']:.2f} |"
    )


def _row(name: str, result: dict, ours: float | None) -> str:
    speed, runs = _speed(result), result["runs"]
    if speed is None:
        return f"| {LABELS[name]} | {result['error']} | | | | |"
    ratio = f"{ours / speed:.2f}x" if ours else ""
    cpu = statistics.median(run["cpu_seconds"] for run in runs)
    worst = min(run["rows_per_second"] for run in runs)
    peak = max(run["peak_mib"] for run in runs)
    return f"| {LABELS[name]} | {speed:,.0f} | {worst:,.0f} | {ratio} | {cpu:.1f} | {peak:,} |"


def _speed(result: dict) -> float | None:
    runs = result.get("runs")
    return statistics.median(run["rows_per_second"] for run in runs) if runs else None


def meets_goals(found: dict) -> bool:
    commits = found["commits"]
    speed = _speed(found["results"]["lakehand-local"]) or 0
    waits = [one["recovery_s"] for one in commits.values()]
    far = commits.get("s3")
    return (
        speed >= GOALS["rows_per_second"]
        and commits["local"]["epoch"]["median_ms"] < _local_goal(found["commits_around"])
        and (far is None or far["epoch"]["median_ms"] < GOALS["s3_ms"])
        and max(waits) < GOALS["recovery_s"]
    )


def _local_goal(around: dict) -> int:
    """Return the milliseconds that an epoch may take, by how busy the machine was."""
    is_busy = around["load_before"] > BUSY * around["cores"]
    return GOALS["busy_ms"] if is_busy else GOALS["quiet_ms"]


SECTION = Section(name="sink", table=table)

if __name__ == "__main__":
    main()
