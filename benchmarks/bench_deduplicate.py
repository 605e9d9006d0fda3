"""Deduplication beside what its peers can be asked for, in one run: one row of each key is kept.

Every contender works in a warm process of its own, each time on a fresh copy of the table, and must
leave the same rows. delta-spark and delta-rs have no such verb: a MERGE that deletes is the best
that a user of theirs can write, an overwrite with a window what most write.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from contest import Contender, ContenderError
from deltalake import DeltaTable, write_deltalake
from tpch import link_tree

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results" / "deduplicate.json"
#: Contenders, and how each is asked.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "lakehand-spark": ("lakehand-spark", {}),
    "lakehand-local": ("lakehand-local", {}),
    "delta-rs merge": ("delta-rs", {}),
    "delta-spark merge": ("delta-spark", {"way": "merge"}),
    "delta-spark overwrite": ("delta-spark", {"way": "overwrite"}),
    "duckdb, no table": ("duckdb", {}),
}
_FILES = 6


def main() -> None:
    chosen = _options()
    CACHE.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"load": os.getloadavg()[0], "rows": chosen.rows, "contenders": {}}
    with TemporaryDirectory(prefix="deduplicate-", dir=CACHE) as folder, ExitStack() as stack:
        source = make_source(Path(folder) / "source", chosen.rows, share=chosen.duplicates)
        for name in chosen.peers:
            kind, wish = WAYS[name]
            contender = stack.enter_context(Contender(kind, Path(folder)))
            found["contenders"][name] = _run(contender, source, wish, runs=chosen.runs)
            print(_line(name, found["contenders"][name]), flush=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--duplicates", type=float, default=0.01, help="share of the rows")
    return parser.parse_args()


def make_source(path: Path, rows: int, *, share: float) -> Path:
    """Write rows in several files, of which some have the key of a row in an earlier file."""
    lot = np.random.default_rng(5)
    size = rows // _FILES
    for number in range(_FILES):
        ids = np.arange(number * size, (number + 1) * size)
        again = lot.random(size) < (share if number else 0)
        ids[again] = lot.integers(0, number * size or 1, again.sum())
        content = {
            "id": ids,
            "moment": pa.array(number * size + np.arange(size)),
            "amount": lot.random(size),
            "note": pa.array([f"note {place}" for place in lot.integers(0, 10**6, size)]),
        }
        write_deltalake(path, pa.table(content), mode="append")
    return path


def _run(contender: Contender, source: Path, wish: dict[str, Any], *, runs: int) -> dict[str, Any]:
    table = source.parent / "table"
    timed = []
    try:
        for _ in range(runs):
            shutil.rmtree(table, ignore_errors=True)
            link_tree(source, table)
            os.sync()
            run, _ = contender.ask("deduplicate", table=str(table), **wish)
            timed.append(asdict(run))
            if contender.name != "duckdb":
                _require_latest(source, table)
    except ContenderError as error:
        return {"runs": timed, "error": str(error).partition("\n")[0]}
    return {"runs": timed}


def _require_latest(source: Path, table: Path) -> None:
    """Stop where a contender left other rows than the latest of each key."""
    files = DeltaTable(source).file_uris()
    [wanted] = duckdb.sql(
        "SELECT count(*), sum(newest) FROM"
        f" (SELECT max(moment) AS newest FROM read_parquet({files}) GROUP BY id)"
    ).fetchall()
    from lakehand import open_table

    left = open_table(table).to_arrow(columns=["moment"])["moment"]
    if (len(left), sum(left.to_numpy().tolist())) != (wanted[0], int(wanted[1])):
        sys.exit(f"{table} has other rows than the latest of each key")


def _line(name: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{name:22} {result['error']}"
    seconds = [run["seconds"] for run in result["runs"]]
    cpu = median(run["cpu_seconds"] for run in result["runs"])
    peak = max(run["peak_mib"] for run in result["runs"])
    times = f"{median(seconds):7.2f} s, at worst {max(seconds):.2f}"
    return f"{name:22} {times}; CPU {cpu:.1f} s; peak {peak} MiB"


if __name__ == "__main__":
    main()
