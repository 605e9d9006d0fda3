"""Deduplication beside what its peers can be asked for, in one run: one row of each key is kept.

Every contender works in a warm process of its own; all take turns, each time on a fresh copy of the
table, and must leave the rows that DuckDB computes. delta-spark and delta-rs have no such verb: a
MERGE that deletes is the best that a user of theirs can write, an overwrite with a window what most
write.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from contest import Contender
from deltalake import DeltaTable, write_deltalake
from sections import ROOT, Section, ask, circumstances, head, in_words, median, row
from tpch import link_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHE = ROOT / ".cache" / "bench"
FULL_ROWS, FILES, SHARE = 6_000_000, 6, 0.01
#: Contenders, and how each is asked.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "**lakehand** `deduplicate`, Spark": ("lakehand-spark", {}),
    "**lakehand** `deduplicate`, processes": ("lakehand-local", {}),
    "DuckDB finds, delta-rs `merge` deletes": ("delta-rs", {}),
    "delta-spark `MERGE`": ("delta-spark", {"way": "merge"}),
    "delta-spark `INSERT OVERWRITE`": ("delta-spark", {"way": "overwrite"}),
    "DuckDB `COPY`, no table": ("duckdb", {}),
}
CONTENDERS = tuple({kind: None for kind, _ in WAYS.values()})
TITLES = ("", "median s", "worst s", "against lakehand", "CPU s", "peak MiB", "rows")


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        is_full = chosen.rows == FULL_ROWS and set(chosen.peers) == set(CONTENDERS)
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    sys.exit(0 if all_equal(found) else "a contender left other rows")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows)
    options.add_argument("--peers", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--timeout", type=float, default=900, help="seconds for one run")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Let the contenders take duplicates out, in turns, each time of a fresh copy."""
    CACHE.mkdir(parents=True, exist_ok=True)
    around = circumstances()
    ways = [name for name, (kind, _) in WAYS.items() if kind in chosen.peers]
    results: dict[str, dict[str, Any]] = {name: {"runs": []} for name in ways}
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="deduplicate-", dir=CACHE, ignore_cleanup_errors=True)
        scratch = Path(stack.enter_context(folder))
        source = make_source(scratch / "source", chosen.rows)
        contenders = {
            kind: stack.enter_context(Contender(kind, scratch, timeout_seconds=chosen.timeout))
            for kind in CONTENDERS
            if kind in chosen.peers
        }
        small = make_source(scratch / "small", chosen.rows // 100)
        for name in ways:
            _run(name, contenders, small, {"runs": []})
        for number in range(chosen.runs):
            first = number % len(ways)
            for name in (*ways[first:], *ways[:first]):
                _run(name, contenders, source, results[name])
    return {**around, "rows": chosen.rows, "results": results}


def make_source(path: Path, rows: int) -> Path:
    """Write rows in several files, of which some have the key of a row in an earlier file."""
    lot = np.random.default_rng(5)
    size = rows // FILES
    for number in range(FILES):
        ids = np.arange(number * size, (number + 1) * size)
        again = lot.random(size) < (SHARE if number else 0)
        ids[again] = lot.integers(0, number * size or 1, again.sum())
        content = {
            "id": ids,
            "moment": pa.array(number * size + np.arange(size)),
            "amount": lot.random(size),
            "note": pc.binary_join_element_wise(
                "note", pa.array(lot.integers(0, 10**6, size)).cast(pa.string()), " "
            ),
        }
        write_deltalake(path, pa.table(content), mode="append")
    return path


def _run(
    name: str, contenders: Mapping[str, Contender], source: Path, result: dict[str, Any]
) -> None:
    kind, wish = WAYS[name]
    place = source.parent / "table"
    shutil.rmtree(place, ignore_errors=True)
    link_tree(source, place)
    os.sync()
    measured = ask(contenders[kind], result, "deduplicate", table=str(place), **wish)
    if measured is None:
        return
    print(
        f"{name:38} {measured.seconds:7.2f} s   cpu {measured.cpu_seconds:7.2f} s",
        file=sys.stderr,
        flush=True,
    )
    files = list(map(str, place.glob("copied/*"))) if kind == "duckdb" else _files_of(place)
    is_equal = _expected(source) == _sums(_ALL.format(files=files))
    result["is_equal"] = result.get("is_equal", True) and is_equal


_ALL = "FROM read_parquet({files})"
_NEWEST = _ALL + " QUALIFY row_number() OVER (PARTITION BY id ORDER BY moment DESC) = 1"


@cache
def _expected(source: Path) -> list[Any]:
    return _sums(_NEWEST.format(files=_files_of(source)))


def _files_of(place: Path) -> list[str]:
    return DeltaTable(place).file_uris()


def _sums(query: str) -> list[Any]:
    """Return what equal rows have in common, in whatever order they are."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        hashed = f"SELECT count(*), sum(hash(id, moment, amount, note))::VARCHAR FROM ({query})"
        return list(connection.execute(hashed).fetchone())


def all_equal(found: dict[str, Any]) -> bool:
    return all(result.get("is_equal", True) for result in found["results"].values())


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    subject = f"{found['rows']:,} rows in {FILES} files, {SHARE:.0%} are duplicates"
    ours = next(iter(found["results"].values()))
    rows = [_row(name, result, ours) for name, result in found["results"].items()]
    return "\n".join([in_words(found, subject), "", *head(TITLES), *rows])


def _row(name: str, result: dict[str, Any], ours: dict[str, Any]) -> str:
    seconds, base = median(result, "seconds"), median(ours, "seconds")
    if seconds is None:
        return row(name, result.get("error", "not run"), width=len(TITLES))
    return row(
        name,
        f"{seconds:.2f}",
        f"{max(run['seconds'] for run in result['runs']):.2f}",
        f"{seconds / base:.2f}x" if base else "",
        f"{median(result, 'cpu_seconds'):.1f}",
        f"{max(run['peak_mib'] for run in result['runs']):,}",
        "equal" if result["is_equal"] else "**not equal**",
        width=len(TITLES),
    )


SECTION = Section(name="deduplicate", table=table)

if __name__ == "__main__":
    main()
