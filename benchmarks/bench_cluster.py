"""Clustering beside its peers, in one run: how long it takes, and what queries have of it.

Every contender works in a warm process of its own; all take turns, each time on a fresh copy of the
table. Cases that `--only` leaves out keep the results that they had.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
from contest import Contender, ContenderError
from lineitem import make_lineitem
from tpch import data_files, link_tree

from lakehand import open_table
from lakehand.planning.probes import draw_probes, skip_rate
from lakehand.planning.quantiles import STEPS

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results" / "cluster.json"
MIB = 2**20
COLUMNS = ["l_shipdate", "l_partkey"]
_FILES, _QUERIES = 10, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What is asked of whom."""

    name: str
    contenders: tuple[str, ...]
    curve: str
    rows: int = 12_000_000
    #: What lakehand alone is told.
    settings: dict[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = tuple(COLUMNS)


LAKEHAND = ("lakehand-spark", "lakehand-local")
CASES = (
    Case(name="zorder", contenders=(*LAKEHAND, "delta-rs", "delta-spark"), curve="zorder"),
    Case(name="hilbert", contenders=LAKEHAND, curve="hilbert"),
    Case(name="shuffle", contenders=LAKEHAND, curve="zorder", settings={"sort_task_bytes": 0}),
    Case(name="linear", contenders=LAKEHAND, curve="linear", rows=10_000_000),
)


def main() -> None:
    chosen = _options()
    CACHE.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in (case for case in CASES if case.name in chosen.only):
        results[case.name] = _contest(case, chosen)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(_page(results))


def _options() -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    peers = sorted({name for case in CASES for name in case.contenders})
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers)
    parser.add_argument("--runs", type=int, default=3, help="of each contender")
    parser.add_argument("--spark-runs", type=int, default=1, help="of delta-spark, which is slow")
    parser.add_argument("--rows", type=int, help="in place of those of the case")
    parser.add_argument("--target-file-mib", type=int, default=16)
    return parser.parse_args()


def _contest(case: Case, chosen: argparse.Namespace) -> dict[str, Any]:
    source = make_lineitem(CACHE, files=_FILES, rows=chosen.rows or case.rows)
    questions = _Questions(source)
    found = {"load": os.getloadavg()[0], "before": questions.ask(source), "contenders": {}}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="cluster-", dir=CACHE))
        scratch = Path(folder)
        for name in (name for name in case.contenders if name in chosen.peers):
            contender = stack.enter_context(Contender(name, scratch))
            runs = chosen.spark_runs if name == "delta-spark" else chosen.runs
            target = chosen.target_file_mib * MIB
            found["contenders"][name] = _run(
                case, contender, source, scratch, questions, runs=runs, target=target
            )
            print(f"{case.name:8} {name:15} {_said(found['contenders'][name])}", file=sys.stderr)
    return found


def _run(
    case: Case,
    contender: Contender,
    source: Path,
    scratch: Path,
    questions: _Questions,
    *,
    runs: int,
    target: int,
) -> dict[str, Any]:
    wish: dict[str, Any] = {"by": list(case.by), "target_file_bytes": target}
    if contender.name.startswith("lakehand"):
        wish |= {"curve": case.curve, **case.settings}
    table = scratch / f"{case.name}-{contender.name}"
    timed, result = [], {}
    try:
        for _ in range(runs):
            shutil.rmtree(table, ignore_errors=True)
            link_tree(source, table)
            os.sync()
            run, _ = contender.ask("cluster", table=str(table), wish=wish)
            timed.append(asdict(run))
        result = {"after": questions.ask(table)}
        if contender.name == "delta-spark":
            told = {"conditions": questions.conditions}
            before, _ = contender.ask("query", table=str(source), **told)
            after, _ = contender.ask("query", table=str(table), **told)
            result["spark_query_seconds"] = {"before": before.seconds, "after": after.seconds}
    except ContenderError as error:
        result = {"error": str(error).partition("\n")[0]}
    return {"runs": timed, **result}


class _Questions:
    """The same questions to every table of the same rows."""

    def __init__(self, source: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET enable_progress_bar = false")
        self.probes = draw_probes({column: self._quantiles(source, column) for column in COLUMNS})
        texts = self.probes.to_sql()
        pairs = texts[len(texts) - len(texts) // 3 :]
        self.conditions = pairs[:: max(1, len(pairs) // _QUERIES)][:_QUERIES]

    def _quantiles(self, source: Path, column: str) -> pa.Array:
        files = [str(path) for path in data_files(source)]
        values = self._connection.sql(
            f"SELECT {column} FROM read_parquet({files}) ORDER BY 1"
        ).to_arrow_table()[column]
        places = np.arange(STEPS + 1) * (len(values) - 1) // STEPS
        return values.take(places).combine_chunks()

    def ask(self, place: Path) -> dict[str, Any]:
        """Return what a reader of statistics skips, and what ten queries then take."""
        files = open_table(place).snapshot(statistics=COLUMNS).files
        found = skip_rate(files, self.probes)
        started, read = time.perf_counter(), 0
        for condition in self.conditions:
            rows = open_table(place).to_arrow(columns=["l_extendedprice"], where=condition)
            read += rows.num_rows
        return {
            "files": files.num_rows,
            "skip_rate": round(found.files, 4),
            "skip_rate_bytes": round(found.bytes, 4),
            "query_rows": read,
            "query_seconds": round(time.perf_counter() - started, 3),
        }


def _said(result: dict[str, Any]) -> str:
    if "error" in result:
        return result["error"]
    seconds = median(run["seconds"] for run in result["runs"])
    return f"{seconds:.2f} s, {result['after']['skip_rate']:.1%} skipped"


def _page(results: dict[str, Any]) -> str:
    head = (
        "| case | contender | median s | worst s | CPU s | peak MiB | files | skipped | queries s |"
    )
    lines = [head, "|" + " --- |" * 9]
    for case, found in results.items():
        before = found["before"]
        rate, seconds = f"{before['skip_rate']:.1%}", before["query_seconds"]
        lines.append(f"| {case} | before | | | | | {before['files']} | {rate} | {seconds} |")
        lines += [_line(case, name, result) for name, result in found["contenders"].items()]
    return "\n".join(lines)


def _line(case: str, name: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"| {case} | {name} | {result['error']} |"
    runs, after = result["runs"], result["after"]
    seconds = [run["seconds"] for run in runs]
    cells = [
        f"{median(seconds):.2f}",
        f"{max(seconds):.2f}",
        f"{median(run['cpu_seconds'] for run in runs):.1f}",
        str(max(run["peak_mib"] for run in runs)),
        str(after["files"]),
        f"{after['skip_rate']:.1%}",
        str(after["query_seconds"]),
    ]
    return f"| {case} | {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
