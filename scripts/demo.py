"""Show on a real table what lakehand does: before, after, and that the rows are the same.

The table is written by delta-rs, in many small commits as a stream would make them, and is judged
by delta-rs in the end. It is small, so no Spark is started for it, and no Java is needed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

import lakehand
from lakehand.model.quantities import format_bytes
from lakehand.prove.digest import digest

if TYPE_CHECKING:
    from lakehand.assess.inspection import Inspection
    from lakehand.model.reports import Forecast
    from lakehand.model.work import Digest

COMMITS = 40
ROWS_A_COMMIT = 3_000
#: Small, as is the table, so that the histogram shows something.
TARGET_FILE_BYTES = 512 * 1024
#: How far bytes may be from what the plan says.
FORECAST_ERROR = 0.1
REGIONS = np.array(["africa", "americas", "asia", "europe"])
console = Console(highlight=False, width=100)


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lakehand-demo-") as directory:
        path = Path(directory) / "events"
        console.rule("A table as a stream leaves it behind")
        build(path)
        lakehand_command("inspect", path)
        before, judged_before = fingerprint(path), read_with_delta_rs(path)

        console.rule("What would change, and why")
        lakehand_command("plan", path)
        forecast = lakehand.open_table(path).plan().forecast

        console.rule("Merge the small files, prove the rows equal, commit")
        lakehand_command("compact", path)
        lakehand_command("checkpoint", path)

        console.rule("The same rows, in few files")
        lakehand_command("inspect", path)
        lakehand_command("history", path, "--limit", "3")

        console.rule("Checked again, from the outside")
        check_rows(before, fingerprint(path))
        check("delta-rs reads the same rows", judged_before.equals(read_with_delta_rs(path)))
        check_forecast(forecast, lakehand.open_table(path).inspect())
        check("no file was left behind that no version refers to", not strays(path))
    console.print(f"\nDone in {time.monotonic() - started:.0f} s.")


def build(path: Path) -> None:
    properties = {"delta.targetFileSize": str(TARGET_FILE_BYTES)}
    for commit in range(COMMITS):
        rows = events(commit)
        write_deltalake(
            str(path), rows, mode="append", partition_by=["region"], configuration=properties
        )
    DeltaTable(str(path)).delete(f"event_id < {2 * ROWS_A_COMMIT} AND event_id % 3 = 0")
    console.print(f"{COMMITS} appends of {ROWS_A_COMMIT:,} events in 4 regions, and a delete.\n")


def events(commit: int) -> pa.Table:
    chance = np.random.default_rng(commit)
    ids = np.arange(commit * ROWS_A_COMMIT, (commit + 1) * ROWS_A_COMMIT)
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=commit)
    at = np.datetime64(start.replace(tzinfo=None), "us") + ids.astype("timedelta64[ms]")
    return pa.table(
        {
            "event_id": ids,
            "region": REGIONS[chance.integers(0, len(REGIONS), ROWS_A_COMMIT)],
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "amount": chance.lognormal(3, 1, ROWS_A_COMMIT).round(2),
        }
    )


def lakehand_command(*arguments: object) -> None:
    words = [str(argument) for argument in arguments]
    shown = [Path(word).name if word.startswith("/") else word for word in words]
    console.print(f"[bold]$ lakehand {' '.join(shown)}[/bold]")
    done = subprocess.run([sys.executable, "-m", "lakehand", *words], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    console.print()


def fingerprint(path: Path) -> Digest:
    rows = lakehand.open_table(path).to_arrow()
    return digest(rows.to_batches(), rows.schema)


def check_rows(before: Digest, after: Digest) -> None:
    check(f"{before.rows:,} rows before, {after.rows:,} rows after", before.rows == after.rows)
    lanes = "".join(f"{lane:016x}" for lane in after.lanes)
    check(f"the digest of all rows is the same: {lanes}", before == after)


def check_forecast(forecast: Forecast, report: Inspection) -> None:
    expected = f"{forecast.files_after} files, {format_bytes(forecast.bytes_after)}"
    found = f"{report.file_count} files, {format_bytes(report.total_bytes)}"
    is_near = abs(forecast.bytes_after / report.total_bytes - 1) <= FORECAST_ERROR
    same_count = forecast.files_after == report.file_count
    check(f"the plan said {expected}; it became {found}", same_count and is_near)


def read_with_delta_rs(path: Path) -> pa.Table:
    return DeltaTable(str(path)).to_pyarrow_table().sort_by("event_id")


def strays(path: Path) -> set[str]:
    """Return files of the table's directory that no version refers to."""
    table = lakehand.open_table(path)
    known: set[str] = set()
    for version in range(table.snapshot().version + 1):
        known |= set(table.snapshot(version=version).files["path"].to_pylist())
    on_disk = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    return {name for name in on_disk - known if not name.startswith("_delta_log/")}


def check(claim: str, holds: bool) -> None:  # noqa: FBT001
    console.print(f"[green]ok[/green]  {claim}" if holds else f"[red]NO[/red]  {claim}")
    if not holds:
        sys.exit(1)


if __name__ == "__main__":
    main()
