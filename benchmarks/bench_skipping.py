"""What clustering buys: files skipped by the same questions, beside delta-spark and delta-rs.

The same rows are laid out by delta-spark's CLUSTER BY with OPTIMIZE, by its ZORDER, by delta-rs's
z_order and by lakehand, in two, three and four columns, uniform and skewed. lakehand never gets
more files than the others, because more files skip more. The goal is a skip rate along Hilbert's
curve that is at least that of delta-spark, everywhere.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

from deltalake import DeltaTable, write_deltalake

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.oracle import Oracle  # noqa: E402
from support.skipping_contest import (  # noqa: E402
    Layout,
    Spread,
    by_delta_spark,
    by_lakehand,
    make_rows,
    measured,
    questions,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehand.planning.probes import ProbeSet

ROWS = int(os.environ.get("LAKEHAND_BENCH_ROWS", "1000000"))
FILE_BYTES = int(os.environ.get("LAKEHAND_BENCH_FILE_BYTES", str(ROWS // 3)))
COLUMNS = (2, 3, 4)
RESULTS = ROOT / "benchmarks" / "results" / "skipping.json"


def main() -> None:
    found = []
    with TemporaryDirectory() as scratch, Oracle(_directory(Path(scratch), "oracle")) as oracle:
        for columns, spread in product(COLUMNS, get_args(Spread)):
            place = _directory(Path(scratch), f"{columns}-{spread}")
            layouts = contest(oracle, place, columns, spread)
            found.append({"columns": columns, "spread": spread, "rows": ROWS, **_plain(layouts)})
            print(line(columns, spread, layouts), flush=True)
            RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(0 if all(meets_goal(entry) for entry in found) else "a goal is missed")


def contest(oracle: Oracle, place: Path, columns: int, spread: Spread) -> dict[str, Layout]:
    rows = make_rows(ROWS, columns, spread)
    probes = questions(rows)
    peers = {
        f"delta-spark {way}": by_delta_spark(
            oracle, place / way, rows, probes, way=way, file_bytes=FILE_BYTES
        )
        for way in ("liquid", "zorder")
    }
    files = min(layout.files for layout in peers.values())
    ours = {
        f"lakehand {curve}": by_lakehand(place / curve, rows, probes, curve=curve, files=files)
        for curve in ("hilbert", "zorder")
    }
    return {**peers, "delta-rs z_order": by_delta_rs(place / "rs", rows, probes, files), **ours}


def by_delta_rs(path: Path, rows: pa.Table, probes: ProbeSet, files: int) -> Layout:
    write_deltalake(str(path), rows)
    table = DeltaTable(str(path))
    size = sum(table.get_add_actions()["size_bytes"].to_pylist())
    table.optimize.z_order(list(probes.columns), target_size=size // files)
    return measured(path, probes)


def meets_goal(entry: dict[str, dict[str, float]]) -> bool:
    ours = entry["lakehand hilbert"]["skip_rate"]
    peers = [layout for name, layout in entry.items() if name.startswith("delta-spark")]
    return all(ours >= layout["skip_rate"] for layout in peers)


def line(columns: int, spread: str, layouts: dict[str, Layout]) -> str:
    words = (
        f"{name} {layout.skip_rate:.1%} of {layout.files:,}" for name, layout in layouts.items()
    )
    return f"{columns} columns, {spread:<7}: " + "; ".join(words)


def _plain(layouts: dict[str, Layout]) -> dict[str, dict[str, float]]:
    return {name: asdict(layout) for name, layout in layouts.items()}


def _directory(parent: Path, name: str) -> Path:
    place = parent / name
    place.mkdir()
    return place


if __name__ == "__main__":
    main()
