"""Compact a Lance table of 1,000 small fragments, beside Lance's own `compact_files()`.

Beside it, how long a filtered scan takes before and after the table is clustered.

Both compact copies of one table in turns, each in a process of its own, and both are counted from
the call to its return. lakehand reads all rows twice more than Lance does, to prove them. Only the
ratio means something: all are measured in one run, on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "lance.json"
CONTENDERS = ("lakehand", "lakehand --prove counts", "lance")
DIMENSIONS = 64


def main() -> None:
    chosen = _arguments()
    if chosen.contender:
        print(json.dumps(compact(chosen.contender, chosen.table)))
        return
    found = measure(chosen)
    if chosen.fragments >= 1_000:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fragments", type=int, default=1_000)
    options.add_argument("--rows", type=int, default=1_000, help="of each fragment")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--contender", choices=CONTENDERS, help="compact --table, then end")
    options.add_argument("--table")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict:
    """Let the contenders compact in turns; the middle of all runs counts."""
    seconds: dict[str, list[dict]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as scratch:
        original = Path(scratch) / "original"
        make_table(str(original), fragments=chosen.fragments, rows=chosen.rows)
        for _ in range(chosen.runs):
            for name in CONTENDERS:
                copy = Path(scratch) / "copy"
                shutil.copytree(original, copy)
                seconds[name].append(_run(name, str(copy)))
                shutil.rmtree(copy)
    middle = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in seconds.items()
    }
    own = middle["lance"]["wall_seconds"]
    return {
        "filtered_scan": measure_scan(chosen),
        "fragments": chosen.fragments,
        "rows": chosen.fragments * chosen.rows,
        "load": os.getloadavg()[0],
        "results": middle,
        "times_lance": {name: found["wall_seconds"] / own for name, found in middle.items()},
    }


def measure_scan(chosen: argparse.Namespace) -> dict:
    """Say how long a scan of one label takes before and after the table is clustered by it.

    Without an index all fragments are read; with a scalar index only where its rows lie.
    """
    import lance

    import lakehand

    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "table")
        make_table(path, fragments=max(8, chosen.fragments // 10), rows=chosen.rows * 10)
        found = {"before": _scan(path)}
        size = sum(file.stat().st_size for file in Path(path, "data").iterdir())
        lakehand.open_table(path, engine="local", target_file_bytes=size // 8).cluster(by=["label"])
        found["clustered"] = _scan(path)
        lance.dataset(path).create_scalar_index("label", "BTREE")
        found["clustered and indexed"] = _scan(path)
    return found


def _scan(path: str) -> float:
    """Return the middle of five scans in milliseconds; each opens the table anew."""
    import lance

    times = []
    for _ in range(5):
        started = time.perf_counter()
        lance.dataset(path).to_table(filter="label = '77'")
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def _run(name: str, table: str) -> dict:
    command = [sys.executable, __file__, "--contender", name, "--table", table]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def make_table(path: str, *, fragments: int, rows: int) -> None:
    """Write rows with a vector each, in one commit of many fragments."""
    import lance
    import numpy as np
    import pyarrow as pa

    count = fragments * rows
    random = np.random.default_rng(1)
    vectors = pa.array(random.random(count * DIMENSIONS, dtype=np.float32))
    table = pa.table(
        {
            "id": np.arange(count),
            "label": pa.array(random.integers(0, 1_000, count).astype(str)),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, DIMENSIONS),
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=rows)


def compact(contender: str, path: str) -> dict:
    """Compact the table and say how long that took, start-up of the process apart."""
    import lance

    import lakehand

    dataset = lance.dataset(path)
    rows = dataset.count_rows()
    started, before = time.perf_counter(), _cpu_seconds()
    if contender == "lance":
        # All rows into one fragment, as lakehand's target of bytes makes them.
        dataset.optimize.compact_files(target_rows_per_fragment=rows)
    else:
        prove = "counts" if contender.endswith("counts") else "digest"
        lakehand.open_table(path, engine="local", prove=prove).compact()
    found = {
        "wall_seconds": time.perf_counter() - started,
        "cpu_seconds": _cpu_seconds() - before,
    }
    after = lance.dataset(path)
    assert (after.count_rows(), len(after.get_fragments())) == (rows, 1)
    return found


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
