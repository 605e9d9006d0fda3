"""Show what `lakehand serve` does: 50 tables full of small files, with writers, become healthy.

The tables are written by delta-rs. Each writer counts what was acknowledged to it, and in the end
every row must be there once.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

import lakehand

SMALL_FILES = 30
ROWS_A_COMMIT = 20
#: Files this young are left to their writers. A day's work is shown in a minute here.
CONFIG = """
[service]
poll_interval = "2s"
[[source]]
name = "demo"
include = ["tables"]
every = "5s"
[policy.default]
quiet_period = "2s"
quiet_period_max = "4s"
check_after = { commits = 8, time = "5s" }
"""
console = Console(highlight=False, width=100)


class Writer:
    """Appends to one table after the other until it is told to end; keeps what is acknowledged."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self._root = root
        self._names = names
        self._end = threading.Event()
        self.rows = dict.fromkeys(names, 0)
        self._thread = threading.Thread(target=self._run)

    def append(self, name: str) -> None:
        first = self.rows[name]
        ids = list(range(first, first + ROWS_A_COMMIT))
        rows = pa.table({"id": ids, "text": [f"row {number}" for number in ids]})
        write_deltalake(str(self._root / name), rows, mode="append")
        self.rows[name] += ROWS_A_COMMIT

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            for name in self._names:
                if not self._end.wait(0.2):
                    self.append(name)

    def end(self) -> None:
        self._end.set()
        self._thread.join()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tables", type=int, default=50)
    arguments.add_argument("--seconds", type=int, default=300, help="give up after this time")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakehand-demo-") as directory:
        return show(Path(directory), chosen.tables, chosen.seconds)


def show(root: Path, count: int, seconds: int) -> int:
    names = [f"table_{number:02}" for number in range(count)]
    writer = Writer(root / "tables", names)
    console.rule(f"{count} tables of {SMALL_FILES} small files each, written by delta-rs")
    for name in names:
        for _ in range(SMALL_FILES):
            writer.append(name)
    (root / "lakehand.toml").write_text(CONFIG)
    writer.start()
    console.rule("lakehand serve, while the writer goes on")
    command = [str(Path(sys.executable).with_name("lakehand")), "serve", "--log-level", "warning"]
    service = subprocess.Popen(command, cwd=root)
    try:
        is_healthy = watch(root, names, seconds)
    finally:
        writer.end()
        service.send_signal(signal.SIGTERM)
        code = service.wait(60)
    console.rule("Checked from the outside")
    is_whole = all(has_its_rows(root / "tables" / name, writer.rows[name]) for name in names)
    console.print(f"  {'ok' if is_healthy else 'NO'}  all tables are healthy")
    console.print(f"  {'ok' if is_whole else 'NO'}  delta-rs reads every acknowledged row once")
    console.print(f"  {'ok' if code == 0 else 'NO'}  SIGTERM ended the service in good order")
    return 0 if is_healthy and is_whole and code == 0 else 1


def watch(root: Path, names: list[str], seconds: int) -> bool:
    """Print the health of the tables until all are healthy, or the time is over."""
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        tables = [lakehand.open_table(root / "tables" / name) for name in names]
        reports = [table.health() for table in tables]
        scores = [report.score for report in reports]
        files = sum(report.file_count for report in reports)
        bar = "█" * round(40 * sum(scores) / (100 * len(scores)))
        mean = sum(scores) / len(scores)
        console.print(f"{passed:4.0f} s  health {mean:3.0f}/100 {bar:<40} {files:5,} files")
        if all(report.healthy for report in reports):
            return True
        time.sleep(3)
    return False


def has_its_rows(path: Path, count: int) -> bool:
    ids = DeltaTable(str(path)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    return sorted(ids) == list(range(count))


if __name__ == "__main__":
    sys.exit(main())
