"""How long writers' commits take beside lakehand, and without it.

delta-rs appends to a table. In every second part of the commits a process of lakehand compacts,
clusters and checkpoints the table without a pause; in the others nothing else uses it. The parts
alternate, so that what else runs on the machine falls on both.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import lakehand
from campaign.rounds import BLOCK_ROWS
from campaign.verbs import RUNS, Place, rows_of, schema_of
from campaign.warm import warm_process
from lakehand.errors import LakehandError
from support.compactions import tasks_inline

_PARTS = 8


@dataclass(kw_only=True)
class Commits:
    """What writers saw in the parts of one kind."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def describe(self) -> dict[str, float]:
        cuts = statistics.quantiles(self.seconds, n=100, method="inclusive")
        told = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "longest": max(self.seconds)}
        in_ms = {f"{name}_ms": round(1000 * seconds, 1) for name, seconds in told.items()}
        return {"commits": len(self.seconds), "failed": self.failed, **in_ms}


def maintain_without_pause(uri: str, noted: str) -> None:
    """Rewrite a table again and again, and note how often; killed at the end of a part."""
    rewrites = failed = 0
    table = Place(uri=uri).open(engine="local", **RUNS)
    with tasks_inline():
        while True:
            try:
                if rewrites % 4 == 3:
                    table.cluster(by=["id"], full=False)
                else:
                    table.compact(min_files=2)
                rewrites += 1
                table.checkpoint()
            except LakehandError:
                failed += 1
            new = Path(f"{noted}.new")
            new.write_text(json.dumps([rewrites, failed]))
            new.replace(noted)


def _write(uri: str, blocks: range, commits: Commits) -> int:
    written = 0
    for block in blocks:
        started = time.perf_counter()
        try:
            write_deltalake(uri, rows_of([block]), mode="append")
        except DeltaError:
            commits.failed += 1
        else:
            commits.seconds.append(time.perf_counter() - started)
            written += 1
    return written


def measure(folder: Path, count: int) -> dict[str, object]:
    """Return the latencies of `count` commits, half of them beside lakehand."""
    uri, noted = str(folder / "table"), str(folder / "noted")
    lakehand.create_table(uri, schema_of(), format="delta")
    alone, beside = Commits(), Commits()
    size, written, totals = count // _PARTS, 0, [0, 0]
    for part in range(_PARTS):
        blocks = range(part * size, (part + 1) * size)
        if part % 2 == 0:
            written += _write(uri, blocks, alone)
            continue
        process = warm_process(()).fork(maintain_without_pause, uri, noted)
        written += _write(uri, blocks, beside)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if Path(noted).exists():
            numbers = json.loads(Path(noted).read_text())
            totals = [total + number for total, number in zip(totals, numbers, strict=True)]
            Path(noted).unlink()
    rows = DeltaTable(uri).to_pyarrow_dataset().count_rows()
    return {
        "without": alone.describe(),
        "beside": beside.describe(),
        "rewrites": totals[0],
        "failed_rewrites": totals[1],
        "missing_rows": written * BLOCK_ROWS - rows,
        "load": [round(number, 1) for number in os.getloadavg()],
    }
