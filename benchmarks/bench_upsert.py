"""Upsert one row in a hundred into a table of ten million, beside delta-rs and delta-spark.

Nine of ten rows that come in are there already, all over the table or in its newest files; the
others are new. Tables with deletion vectors are for those who write them; delta-rs does not. Only
the ratios mean something: all are measured in one run, on one machine, and all must leave the rows
that DuckDB computes from the sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contest import Contender, ContenderError
from sections import ROOT, Section, circumstances, in_words

from lakehand import create_table, open_table

if TYPE_CHECKING:
    from pathlib import Path

CONTENDERS = ("lakehand-local", "lakehand-spark", "delta-rs", "delta-spark")
LABELS = {
    "lakehand-local": "**lakehand** `upsert`, processes",
    "lakehand-spark": "**lakehand** `upsert`, Spark",
    "delta-rs": "delta-rs `merge`",
    "delta-spark": "delta-spark `MERGE`",
}
#: Keys of the rows that come in, and whether the table has deletion vectors.
CASES = {
    "scattered, vectors": ("scattered", True),
    "newest, vectors": ("newest", True),
    "scattered, copies": ("scattered", False),
}
FULL_ROWS, FILES, SHARE, NEW = 10_000_000, 10, 0.01, 0.1


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        is_full = chosen.rows >= FULL_ROWS and set(chosen.contenders.split(",")) == set(CONTENDERS)
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    sys.exit(0 if all_equal(found) else "a contender left other rows")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows)
    options.add_argument("--contenders", default=",".join(CONTENDERS))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--timeout", type=float, default=900, help="seconds for one run")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Let the contenders upsert in turns, each time into a fresh copy of the table."""
    around = circumstances()
    scratch = ROOT / ".cache" / "bench" / "upsert"
    shutil.rmtree(scratch, ignore_errors=True)
    places = {has: make_table(scratch / f"table-{has}", chosen.rows, has) for has in (True, False)}
    results: dict[str, dict] = {case: {} for case in CASES}
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(Contender(name, scratch, timeout_seconds=chosen.timeout))
            for name in chosen.contenders.split(",")
        ]
        for case, (spread, vectors) in CASES.items():
            source = make_source(scratch / f"{spread}.parquet", chosen.rows, spread)
            expected = rows_after(places[vectors], source)
            for _ in range(1 + chosen.runs):  # the first one warms up
                for contender in contenders:
                    if vectors and contender.name == "delta-rs":
                        continue
                    result = results[case].setdefault(contender.name, {"runs": []})
                    _run(contender, result, places[vectors], source, expected, scratch / "copy")
    return {
        **around,
        "rows": chosen.rows,
        "results": results,
    }


def _run(
    contender: Contender,
    result: dict[str, Any],
    place: Path,
    source: Path,
    expected: list[Any],
    copy: Path,
) -> None:
    if "error" in result:
        return
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    os.sync()
    try:
        run, report = contender.ask("upsert", table=str(copy), source=str(source), key=["id"])
    except ContenderError as error:
        result["error"] = str(error).partition("\n")[0][:300]
        return
    result["runs"].append(asdict(run) | {"seconds": round(report["seconds"], 4)})
    result["is_equal"] = result.get("is_equal", True) and rows_of(copy) == expected


def make_table(place: Path, rows: int, vectors: bool) -> Path:  # noqa: FBT001
    """Write rows in the order of their keys, a tenth of them in each file."""
    properties = {"delta.enableDeletionVectors": "true"} if vectors else {}
    opened = create_table(place, _rows(np.arange(1)).schema, properties=properties)
    for part in np.array_split(np.arange(rows), FILES):
        opened.append(_rows(part), codec="snappy", target_file_bytes="1GiB")
    return place


def make_source(path: Path, rows: int, spread: str) -> Path:
    """Write the rows that come in."""
    chance = np.random.default_rng(7)
    count = max(10, int(rows * SHARE))
    new = max(1, int(count * NEW))
    known = np.arange(rows) if spread == "scattered" else np.arange(rows - 2 * rows // FILES, rows)
    keys = np.concatenate([chance.choice(known, count - new, replace=False), rows + np.arange(new)])
    pq.write_table(_rows(chance.permutation(keys), changed=1), path)
    return path


def _rows(keys: np.ndarray, *, changed: int = 0) -> pa.Table:
    names = pa.array([f"customer {number:04d}" for number in range(10_000)])
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "customer": names.take(pa.array(keys % 10_000)),
            "amount": pa.array((keys * 7919 % 100_000) / 100 + changed, pa.float64()),
            "changed": pa.array(np.full(len(keys), changed), pa.int32()),
            "at": pa.array(keys * 1_000_000 + changed, pa.timestamp("us", tz="UTC")),
        }
    )


_SUMS = 'count(*), count(DISTINCT id), sum(id)::VARCHAR, sum(changed), sum(hash(id, amount, "at"))'


def rows_after(place: Path, source: Path) -> list[Any]:
    """Return what must be in the table afterwards, computed by DuckDB from both."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        both = (
            f"SELECT t.* FROM read_parquet('{place}/*.parquet') t WHERE id NOT IN"
            f" (SELECT id FROM read_parquet('{source}'))"
            f" UNION ALL SELECT * FROM read_parquet('{source}')"
        )
        return list(connection.execute(f"SELECT {_SUMS} FROM ({both})").fetchone())


def rows_of(place: Path) -> list[Any]:
    """Return what is in a table."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.register(
            "rows", open_table(place).to_arrow(columns=["id", "amount", "changed", "at"])
        )
        return list(connection.execute(f"SELECT {_SUMS} FROM rows").fetchone())


def all_equal(found: dict[str, Any]) -> bool:
    results = (result for case in found["results"].values() for result in case.values())
    return all(result.get("is_equal", True) for result in results)


def table(found: dict[str, Any]) -> str:
    """Return the results as a table of Markdown."""
    lines = [
        in_words(found, f"{found['rows']:,} rows in {FILES} files, 1 % upserted"),
        "",
        "| case | contender | median s | worst s | CPU s | peak MiB | rows |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for case, results in found["results"].items():
        lines += [_line(case, name, result) for name, result in results.items()]
    return "\n".join(lines)


def _line(case: str, name: str, result: dict[str, Any]) -> str:
    label = LABELS[name]
    runs = result["runs"][1:]
    if "error" in result or not runs:
        return f"| {case} | {label} | {result.get('error', 'not run')} | | | | |"
    seconds = [run["seconds"] for run in runs]
    cpu = statistics.median(run["cpu_seconds"] for run in runs)
    peak = max(run["peak_mib"] for run in runs)
    equal = "equal" if result["is_equal"] else "**not equal**"
    return (
        f"| {case} | {label} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |"
        f" {cpu:.1f} | {peak:,.0f} | {equal} |"
    )


SECTION = Section(name="upsert", table=table)

if __name__ == "__main__":
    main()
