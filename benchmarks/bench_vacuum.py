"""Vacuum a table of a million files in ten thousand directories, beside delta-rs and delta-spark.

All but one file in a hundred are garbage and are deleted at once. The goal is to be faster than
both peers, below 1 GB. Only the ratio means something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from contest import Contender
from sections import ROOT, Section, ask, circumstances, head, in_words, median, row

if TYPE_CHECKING:
    from pathlib import Path

CONTENDERS = ("lakehand-local", "delta-rs", "delta-spark")
LABELS = {
    "lakehand-local": "**lakehand** `vacuum(grace=0)`",
    "delta-rs": "delta-rs `vacuum(full=True)`",
    "delta-spark": "delta-spark `VACUUM`",
}
TITLES = ("", "median s", "worst s", "against lakehand", "CPU s", "peak MiB", "files left")
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
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
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
    about = {**circumstances(), "files": file_count}
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
    return {**about, "results": results}


def _run(contender: Contender, result: dict, place: Path, file_count: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    make_table(place, file_count)
    os.sync()
    measured = ask(contender, result, "vacuum", table=str(place))
    if measured is None:
        return
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
            # A million files: strings and plain calls take half the time of `Path.touch`.
            path = f"{directory}/part-{part:05}-{number:010}-c000.snappy.parquet"
            os.mknod(path)
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


def table(found: dict) -> str:
    """Return the results as Markdown."""
    ours = median(found["results"].get("lakehand-local", {}), "seconds")
    rows = [_row(name, result, ours) for name, result in found["results"].items()]
    return "\n".join([in_words(found, f"{found['files']:,} files"), "", *head(TITLES), *rows])


def _row(name: str, result: dict, ours: float | None) -> str:
    seconds, runs = median(result, "seconds"), result["runs"]
    if seconds is None:
        return row(LABELS[name], result["error"], width=len(TITLES))
    return row(
        LABELS[name],
        f"{seconds:.1f}",
        f"{max(run['seconds'] for run in runs):.1f}",
        f"{seconds / ours:.2f}x" if ours else "",
        f"{median(result, 'cpu_seconds'):.1f}",
        f"{max(run['peak_mib'] for run in runs):,}",
        f"{result['files_left']:,}",
        width=len(TITLES),
    )


SECTION = Section(name="vacuum", table=table)


def meets_goal(results: dict[str, dict]) -> bool:
    ours = results["lakehand-local"]
    medians = [found for one in results.values() if (found := median(one, "seconds")) is not None]
    is_small = all(run["peak_mib"] < GOAL_MIB for run in ours["runs"])
    return bool(ours["runs"]) and median(ours, "seconds") == min(medians) and is_small


if __name__ == "__main__":
    main()
