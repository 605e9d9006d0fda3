"""What the compaction of a Lance dataset with a proof costs at least, in CPU seconds.

The limit is a program without a plan, a ledger and a commit: it scans the dataset, hashes the
batches, writes them as one fragment, syncs, scans that and hashes again. All run in turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from bench_lance import make_rows
from process_tree import usage_of

import lakehand
from lakehand.prove.digest import Digester

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH_ROWS, _TARGET_BYTES = 8192, 2**31


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fragments", type=int, default=600, help="of 1,000 rows")
    options.add_argument("--runs", type=int, default=7)
    chosen = options.parse_args()
    cases = {
        "Lance compact_files": _compact_files,
        "scan, write, sync": partial(_rewrite, proves=False),
        "scan, hash, write, sync, read back and hash": partial(_rewrite, proves=True),
        "lakehand compact": _lakehand,
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        source, work = Path(scratch, "source"), Path(scratch, "work")
        rows = make_rows(chosen.fragments * 1000)
        lance.write_dataset(rows, str(source), max_rows_per_file=1000)
        # The first run of each loads modules and starts workers.
        for _ in range(1 + chosen.runs):
            for name, case in cases.items():
                shutil.rmtree(work, ignore_errors=True)
                shutil.copytree(source, work)
                before = usage_of(os.getpid()).cpu_seconds
                case(work)
                found[name].append(usage_of(os.getpid()).cpu_seconds - before)
    for name, seconds in found.items():
        print(f"{name:48} {statistics.median(seconds[1:]):6.2f} CPU s")


def _compact_files(table: Path) -> None:
    dataset = lance.dataset(str(table))
    dataset.optimize.compact_files(target_rows_per_fragment=dataset.count_rows())


def _lakehand(table: Path) -> None:
    lakehand.open_table(str(table)).compact(min_files=2, target_file_bytes=_TARGET_BYTES)


def _rewrite(table: Path, *, proves: bool) -> None:
    dataset, target = lance.dataset(str(table)), table / "limit"
    with Digester(dataset.schema, threads=2) as read, Digester(dataset.schema, threads=2) as left:
        batches = dataset.to_batches(batch_size=_BATCH_ROWS)
        rows = pa.RecordBatchReader.from_batches(
            dataset.schema, _hashed(batches, read) if proves else batches
        )
        lance.write_dataset(rows, str(target), max_rows_per_file=dataset.count_rows())
        _sync(target)
        if proves:
            left.add_all(lance.dataset(str(target)).to_batches(batch_size=_BATCH_ROWS))
            if read.result() != left.result():
                raise SystemExit("the new fragment does not hold the rows that were written")


def _hashed(batches: Iterator[pa.RecordBatch], digester: Digester) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        digester.add(batch)
        yield batch


def _sync(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


if __name__ == "__main__":
    main()
