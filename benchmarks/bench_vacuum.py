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
from dataclasses import asdict
from pathlib import Path

from contest import Contender, ContenderError

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "vacuum.json"
CONTENDERS = ("lakehand-local", "delta-rs", "delta-spark")
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
    options = argparse.ArgumentParser(description=__doc__)
    files = int(os.environ.get("LAKEHAND_BENCH_FILES", "1000000"))
    options.add_argument("--files", type=int, default=files)
    options.add_argument("--contenders", default=",".join(CONTENDERS))
    given = options.parse_args()
    scratch = ROOT / ".cache" / "bench" / "vacuum"
    found = {name: run(name, given.files, scratch) for name in given.contenders.split(",")}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"files": given.files, "results": found}, indent=2) + "\n")
    sys.exit(0 if meets_goal(found) else "the goal is missed")


def run(name: str, file_count: int, scratch: Path) -> dict:
    """Let one contender vacuum a table that is made for it, and count what it left."""
    table = scratch / "table"
    shutil.rmtree(table, ignore_errors=True)
    make_table(table, file_count)
    try:
        with Contender(name, scratch, timeout_seconds=3600) as contender:
            measured, _ = contender.ask("vacuum", table=str(table))
    except ContenderError as error:
        print(f"{name:15} {error}")
        return {"error": str(error)}
    left = sum(1 for _ in table.glob("d=*/*.parquet"))
    print(
        f"{name:15} {measured.seconds:8.2f} s   cpu {measured.cpu_seconds:8.2f} s   "
        f"peak {measured.peak_mib:5} MiB   {left:,} files left"
    )
    return asdict(measured) | {"files_left": left}


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


def meets_goal(found: dict[str, dict]) -> bool:
    ours = found.get("lakehand-local", {})
    peers = [result["seconds"] for result in found.values() if "seconds" in result]
    is_fastest = ours.get("seconds") == min(peers, default=None)
    return is_fastest and ours["peak_mib"] < GOAL_MIB


if __name__ == "__main__":
    main()
