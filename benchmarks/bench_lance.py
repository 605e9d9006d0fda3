"""Compact a Lance table of 1,000 small fragments, beside Lance's own `compact_files()`.

Both compact links to one table in turns, on one core and on two, each in a process that is kept and
has compacted a small table right before, so that imports and worker processes are warm for both.
What the very first compaction of a process takes stands apart. lakehand reads all rows back, to
prove them, and waits until the disk has them. Beside it: how long a filtered scan takes before and
after the table is clustered. Only the ratios mean something: all are measured in one run, on one
machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from contest import Contender
from sections import ROOT, Section, ask, circumstances, head, in_words, median, row

import lakehand

if TYPE_CHECKING:
    from pathlib import Path

FULL_FRAGMENTS = 1_000
DIMENSIONS = 64
TITLES = ("", "median s", "worst s", "against Lance", "CPU s", "peak MiB", "first s", "rows")
SCAN_TITLES = ("one of 1,000 labels", "median ms", "worst ms")
SCANS = 9
_SMALL_ROWS = 16_000
#: Files are planned a little larger than needed, so that none is left over.
_SPARE = 1.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One contender at one piece of work."""

    label: str
    contender: str
    #: Fragments that are to be left.
    parts: int
    #: Case whose time this one is held against.
    peer: str
    prove: str = "digest"


CASES = {
    "one": Case(label="**lakehand** `compact`", contender="lakehand-local", parts=1, peer="lance"),
    "counts": Case(
        label="lakehand `compact --prove counts`",
        contender="lakehand-local",
        parts=1,
        peer="lance",
        prove="counts",
    ),
    "lance": Case(label="Lance `compact_files()`", contender="lance", parts=1, peer="lance"),
    "four": Case(
        label="**lakehand** `compact`", contender="lakehand-local", parts=4, peer="lance-four"
    ),
    "four-spark": Case(
        label="lakehand `compact`, Spark", contender="lakehand-spark", parts=4, peer="lance-four"
    ),
    "four-one-core": Case(
        label="lakehand `compact`, one core",
        contender="lakehand-one-core",
        parts=4,
        peer="lance-four-one-core",
    ),
    "lance-four": Case(
        label="Lance `compact_files()`", contender="lance", parts=4, peer="lance-four"
    ),
    "lance-four-one-core": Case(
        label="Lance `compact_files()`, one core",
        contender="lance-one-core",
        parts=4,
        peer="lance-four-one-core",
    ),
}


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        is_full = chosen.fragments >= FULL_FRAGMENTS and set(found["results"]) == set(CASES)
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    sys.exit(0 if all_equal(found) else "a contender left other rows")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fragments", type=int, default=FULL_FRAGMENTS)
    options.add_argument("--rows", type=int, default=1_000, help="of each fragment")
    options.add_argument("--cases", default=",".join(CASES))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Let the contenders compact in turns; the first run of each case is told apart."""
    around = circumstances()
    scratch = ROOT / ".cache" / "bench" / "lance"
    shutil.rmtree(scratch, ignore_errors=True)
    rows = make_rows(chosen.fragments * chosen.rows)
    original, small = scratch / "original", scratch / "small"
    lance.write_dataset(rows, str(original), max_rows_per_file=chosen.rows)
    lance.write_dataset(rows.slice(0, _SMALL_ROWS), str(small), max_rows_per_file=_SMALL_ROWS // 16)
    cases = {name: CASES[name] for name in chosen.cases.split(",")}
    results: dict[str, dict] = {name: {} for name in cases}
    with ExitStack() as stack:
        contenders = {
            name: stack.enter_context(Contender(name, scratch, timeout_seconds=chosen.timeout))
            for name in {case.contender: None for case in cases.values()}
        }
        for number in range(1 + chosen.runs):
            for name, case in cases.items():
                if number:
                    _run(contenders[case.contender], case, {}, small)
                _run(contenders[case.contender], case, results[name], original)
                if not number:
                    _set_first_apart(results[name], scratch / "copy", rows)
                else:
                    _tell(case, results[name])
    return {
        **around,
        "fragments": chosen.fragments,
        "rows": rows.num_rows,
        "results": results,
        "scans": measure_scans(rows, chosen, scratch),
    }


def _run(contender: Contender, case: Case, result: dict, original: Path) -> None:
    copy = original.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    # Lance never writes into a file that is there.
    shutil.copytree(original, copy, copy_function=os.link)
    os.sync()
    dataset = lance.dataset(str(original))
    size = sum(file.stat().st_size for file in (original / "data").iterdir())
    measured = ask(
        contender,
        result,
        "compact",
        table=str(copy),
        target_file_bytes=int(size / case.parts * _SPARE),
        target_rows=-(-dataset.count_rows() // case.parts),
        prove=case.prove,
    )
    if measured is not None:
        result["fragments"] = len(lance.dataset(str(copy)).get_fragments())


def _tell(case: Case, result: dict) -> None:
    if "error" not in result:
        run = result["runs"][-1]
        print(
            f"{case.label:35} {run['seconds']:6.2f} s   cpu {run['cpu_seconds']:6.2f} s   "
            f"peak {run['peak_mib']:5} MiB   {result['fragments']} fragments",
            flush=True,
        )


def _set_first_apart(result: dict, copy: Path, rows: pa.Table) -> None:
    """Keep what the first run took, and look whether it has left the rows as they were."""
    if "error" not in result:
        (result["first"],) = result.pop("runs")
        left = lance.dataset(str(copy)).to_table().sort_by("id")
        result["is_equal"] = left.combine_chunks().equals(rows.combine_chunks())


def make_rows(count: int) -> pa.Table:
    """Return rows with a vector each, and one of a thousand labels."""
    chance = np.random.default_rng(1)
    vectors = pa.array(chance.random(count * DIMENSIONS, dtype=np.float32))
    return pa.table(
        {
            "id": np.arange(count),
            "label": pa.array(chance.integers(0, 1_000, count).astype(str)),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, DIMENSIONS),
        }
    )


def measure_scans(rows: pa.Table, chosen: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Say how long scans of one label take in tables that hold the same rows in other ways.

    Without an index all labels are read; with one, what lies where its rows are.
    """
    found: dict[str, list[float]] = {}
    path = str(scratch / "scanned")
    for is_clustered, state in ((False, "as written"), (True, "clustered by the label")):
        shutil.rmtree(path, ignore_errors=True)
        lance.write_dataset(rows, path, max_rows_per_file=chosen.rows * 10)
        if is_clustered:
            size = sum(file.stat().st_size for file in (scratch / "scanned" / "data").iterdir())
            table = lakehand.open_table(path, engine="local", target_file_bytes=size // 8)
            table.cluster(by=["label"])
        found[state] = _scan(path)
        lance.dataset(path).create_scalar_index("label", "BTREE")
        found[f"{state}, with a scalar index"] = _scan(path)
    return found


def _scan(path: str) -> list[float]:
    """Return how many milliseconds some scans took; each opens the table anew."""
    times = []
    for _ in range(SCANS):
        started = time.perf_counter()
        lance.dataset(path).to_table(filter="label = '77'")
        times.append(round((time.perf_counter() - started) * 1000, 2))
    return times


def all_equal(found: dict[str, Any]) -> bool:
    return all(result.get("is_equal", True) for result in found["results"].values())


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    subject = f"{found['fragments']:,} fragments, {found['rows']:,} rows"
    lines = [in_words(found, subject), ""]
    for parts in sorted({CASES[name].parts for name in found["results"]}):
        chosen = [name for name in found["results"] if CASES[name].parts == parts]
        into = "one fragment" if parts == 1 else f"{parts} fragments"
        lines += [*head((f"into {into}", *TITLES[1:])), *(_row(found, name) for name in chosen), ""]
    lines += head(SCAN_TITLES)
    lines += [
        row(state, f"{statistics.median(times):.1f}", f"{max(times):.1f}", width=3)
        for state, times in found["scans"].items()
    ]
    return "\n".join(lines)


def _row(found: dict[str, Any], name: str) -> str:
    case, result = CASES[name], found["results"][name]
    seconds = median(result, "seconds")
    if seconds is None:
        return row(case.label, result.get("error", "not run"), width=len(TITLES))
    theirs = median(found["results"].get(case.peer, {}), "seconds")
    return row(
        case.label,
        f"{seconds:.2f}",
        f"{max(run['seconds'] for run in result['runs']):.2f}",
        f"{seconds / theirs:.2f}x" if theirs else "",
        f"{median(result, 'cpu_seconds'):.1f}",
        f"{max(run['peak_mib'] for run in result['runs']):,}",
        f"{result['first']['seconds']:.2f}" if _is_first(name) else "",
        "equal" if result["is_equal"] else "**not equal**",
        width=len(TITLES),
    )


def _is_first(name: str) -> bool:
    """Say whether the process of a case does nothing before it."""
    same = (known for known, case in CASES.items() if case.contender == CASES[name].contender)
    return next(same) == name


SECTION = Section(name="lance", table=table)

if __name__ == "__main__":
    main()
