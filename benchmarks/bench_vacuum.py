"""Vacuum a table of a million files in ten thousand directories, beside delta-rs and delta-spark.

All but one file in a hundred are garbage and are deleted at once. The goal is to be faster than
both peers, below 1 GB. Only the ratio means something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from contest import Contender, ContenderError

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "vacuum.json"
PARTIAL = RESULTS.with_name("vacuum-partial.json")
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- vacuum: written by benchmarks/bench_vacuum.py -->"
END = "<!-- end of vacuum -->"
CONTENDERS = ("lakehand-local", "delta-rs", "delta-spark")
LABELS = {
    "lakehand-local": "**lakehand** `vacuum(grace=0)`",
    "delta-rs": "delta-rs `vacuum(full=True)`",
    "delta-spark": "delta-spark `VACUUM`",
}
FULL_FILES = 1_000_000
WARM_UP_FILES = 200
GOAL_MIB = 1024
FILES_A_DIRECTORY = 100
MONTH_SECONDS = 30 * 24 * 3600
FIELDS = [
    {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "d")
]
METADATA = {
    "id": "00000000-0000-4000-8000-000000000001",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps({"type": "struct", "fields": FIELDS}),
    "partitionColumns": ["d"],
    "configuration": {},
    "createdTime": 1_767_225_600_000,
}


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen.files, chosen.contenders.split(","), chosen)
        is_full = chosen.files >= FULL_FILES and set(found["results"]) == set(CONTENDERS)
        (RESULTS if is_full else PARTIAL).write_text(json.dumps(found, indent=1) + "\n")
        print(table(found))
        if not is_full:
            return
    found = json.loads(RESULTS.read_text())
    PAGE.write_text(with_results(PAGE.read_text(), found))
    sys.exit(0 if meets_goal(found["results"]) else "the goal is missed")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    files = int(os.environ.get("LAKEHAND_BENCH_FILES", FULL_FILES))
    options.add_argument("--files", type=int, default=files)
    options.add_argument("--contenders", default=",".join(CONTENDERS))
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--timeout", type=float, default=900, help="seconds for one vacuum")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(file_count: int, names: list[str], chosen: argparse.Namespace) -> dict:
    """Let the contenders vacuum in turns, each a table that is made for it."""
    load = os.getloadavg()[0]
    scratch = ROOT / ".cache" / "bench" / "vacuum"
    results: dict[str, dict] = {name: {"runs": []} for name in names}
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(Contender(name, scratch, timeout_seconds=chosen.timeout))
            for name in names
        ]
        for contender in contenders:
            _run(contender, {"runs": []}, scratch / "table", WARM_UP_FILES)
        for _ in range(chosen.runs):
            for contender in contenders:
                _run(contender, results[contender.name], scratch / "table", file_count)
    return {
        "taken_on": datetime.now(UTC).date().isoformat(),
        "files": file_count,
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "results": results,
    }


def _run(contender: Contender, result: dict, place: Path, file_count: int) -> None:
    if "error" in result:
        return
    shutil.rmtree(place, ignore_errors=True)
    make_table(place, file_count)
    os.sync()
    try:
        measured, _ = contender.ask("vacuum", table=str(place))
    except ContenderError as error:
        result["error"] = str(error).partition("\n")[0]
        print(f"{contender.name:15} {result['error']}")
        return
    result["runs"].append(asdict(measured))
    result["files_left"] = sum(1 for _ in place.glob("d=*/*.parquet"))
    print(
        f"{contender.name:15} {measured.seconds:8.2f} s   cpu {measured.cpu_seconds:8.2f} s   "
        f"peak {measured.peak_mib:5} MiB   {result['files_left']:,} files left",
        flush=True,
    )


def make_table(table: Path, file_count: int) -> None:
    """Make empty files of last month; the first of each directory is in the table."""
    past, adds = time.time() - MONTH_SECONDS, []
    for number in range(file_count // FILES_A_DIRECTORY):
        directory = table / f"d={number:05}"
        directory.mkdir(parents=True)
        for part in range(FILES_A_DIRECTORY):
            path = directory / f"part-{part:05}-{number:010}-c000.snappy.parquet"
            path.touch()
            os.utime(path, (past, past))
        adds.append(_add(number))
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": METADATA}]
    log = table / "_delta_log"
    log.mkdir()
    lines = (json.dumps(action) for action in (*actions, *adds))
    (log / f"{0:020}.json").write_text("\n".join(lines))


def _add(number: int) -> dict:
    return {
        "add": {
            "path": f"d={number:05}/part-00000-{number:010}-c000.snappy.parquet",
            "partitionValues": {"d": f"{number:05}"},
            "size": 0,
            "modificationTime": 1_767_225_600_000,
            "dataChange": True,
        }
    }


def with_results(page: str, found: dict | None) -> str:
    """Return the page with these results instead of those that it holds."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    results = table(found) if found else "No full run is stored yet."
    return f"{head}{BEGIN}\n\n{results}\n\n{END}{tail}"


def table(found: dict) -> str:
    """Return the results as Markdown."""
    ours = _seconds(found["results"].get("lakehand-local", {}))
    circumstances = f"{found['files']:,} files, {found['cores']} cores"
    lines = [
        f"Taken on {found['taken_on']}: {circumstances}, load {found['load_before']} at the start.",
        "",
        "| | median s | worst s | against lakehand | CPU s | peak MiB | files left |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(name, result, ours) for name, result in found["results"].items()]
    return "\n".join(lines)


def _row(name: str, result: dict, ours: float | None) -> str:
    seconds, runs = _seconds(result), result["runs"]
    if seconds is None:
        return f"| {LABELS[name]} | {result['error']} | | | | | |"
    ratio = f"{seconds / ours:.2f}x" if ours else ""
    cpu = statistics.median(run["cpu_seconds"] for run in runs)
    worst = max(run["seconds"] for run in runs)
    peak = max(run["peak_mib"] for run in runs)
    return (
        f"| {LABELS[name]} | {seconds:.1f} | {worst:.1f} | {ratio} | {cpu:.1f} | {peak:,} | "
        f"{result['files_left']:,} |"
    )


def _seconds(result: dict) -> float | None:
    runs = result.get("runs")
    return statistics.median(run["seconds"] for run in runs) if runs else None


def meets_goal(results: dict[str, dict]) -> bool:
    ours = results["lakehand-local"]
    medians = [seconds for result in results.values() if (seconds := _seconds(result)) is not None]
    is_small = all(run["peak_mib"] < GOAL_MIB for run in ours["runs"])
    return bool(ours["runs"]) and _seconds(ours) == min(medians) and is_small


if __name__ == "__main__":
    main()
