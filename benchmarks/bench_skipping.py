"""What clustering buys: files skipped by the same questions, beside delta-spark and delta-rs.

The same rows are laid out by delta-spark's CLUSTER BY with OPTIMIZE, by its ZORDER, by delta-rs's
z_order and by lakehand, in two, three and four columns, uniform and skewed. lakehand never gets
more files than the others, because more files skip more. The goal is a skip rate along Hilbert's
curve that is at least that of delta-spark, everywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

from deltalake import DeltaTable, write_deltalake
from sections import ROOT, Section, circumstances, head, in_words, row

sys.path.insert(0, str(ROOT / "tests"))

from support.oracle import Oracle
from support.skipping_contest import (
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

FULL_ROWS = 1_000_000
#: Of the table, for each byte that a file is to have: that makes some sixty files.
ROWS_A_BYTE = 3
CASES = tuple(product((2, 3, 4), get_args(Spread)))
LABELS = {
    "delta-spark liquid": "delta-spark `CLUSTER BY`",
    "lakehand hilbert": "**lakehand** Hilbert",
    "delta-spark zorder": "delta-spark `ZORDER`",
    "lakehand zorder": "**lakehand** z-order",
    "delta-rs z_order": "delta-rs `z_order`",
}


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen.rows)
        SECTION.keep(found, is_full=chosen.rows == FULL_ROWS)
        if chosen.rows != FULL_ROWS:
            return
    found = SECTION.draw()
    sys.exit(0 if all(meets_goal(entry) for entry in found["results"]) else "a goal is missed")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows)
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(rows: int) -> dict[str, Any]:
    """Let all contenders lay out the same rows, and ask the same of every layout."""
    found: dict[str, Any] = {**circumstances(), "rows": rows, "results": []}
    with TemporaryDirectory() as scratch, Oracle(_directory(Path(scratch), "oracle")) as oracle:
        for columns, spread in CASES:
            place = _directory(Path(scratch), f"{columns}-{spread}")
            layouts = contest(oracle, place, make_rows(rows, columns, spread))
            plain = {name: asdict(layout) for name, layout in layouts.items()}
            found["results"].append({"columns": columns, "spread": spread, **plain})
            print(_line(found["results"][-1]), file=sys.stderr, flush=True)
    return found


def contest(oracle: Oracle, place: Path, rows: pa.Table) -> dict[str, Layout]:
    probes, file_bytes = questions(rows), rows.num_rows // ROWS_A_BYTE
    peers = {
        f"delta-spark {way}": by_delta_spark(
            oracle, place / way, rows, probes, way=way, file_bytes=file_bytes
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


def meets_goal(entry: dict[str, Any]) -> bool:
    ours = entry["lakehand hilbert"]["skip_rate"]
    peers = [layout for name, layout in entry.items() if name.startswith("delta-spark")]
    return all(ours >= layout["skip_rate"] for layout in peers)


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    results = found["results"]
    met = sum(meets_goal(entry) for entry in results)
    return "\n".join(
        [
            in_words(found, f"{found['rows']:,} rows"),
            "",
            *head(("columns and values", *LABELS.values())),
            *(_line(entry) for entry in results),
            "",
            f"Hilbert skips at least what delta-spark skips: in {met} of {len(results)} cases.",
        ]
    )


def _line(entry: dict[str, Any]) -> str:
    layouts = [entry[name] for name in LABELS]
    cells = [f"{layout['skip_rate']:.1%} of {layout['files']:,}" for layout in layouts]
    return row(f"{entry['columns']}, {entry['spread']}", *cells, width=1 + len(LABELS))


def _directory(parent: Path, name: str) -> Path:
    place = parent / name
    place.mkdir()
    return place


SECTION = Section(name="skipping", table=table)

if __name__ == "__main__":
    main()
