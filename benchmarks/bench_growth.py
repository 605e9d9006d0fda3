"""How work and memory grow with files, partitions, columns, rows and tasks.

Each point is a median of several runs, each in a process of its own. The log of many files has no
data files: opening a table and planning its compaction read the log alone. Goals: ten million files
are opened and planned in under 2 GB, and work grows no faster than the table.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from growth_picture import draw_curves
from large_log import make_log
from measure import Case, Measurement, measure
from sections import ROOT, Section, circumstances, in_words

if TYPE_CHECKING:
    from collections.abc import Callable

PICTURE = ROOT / "docs" / "images" / "growth.svg"
GOAL_FILES, GOAL_MIB = 10_000_000, 2_000
_ROWS_PER_FILE = 25_000
_IMPORTS = (
    "import lakehand, lakehand.table, lakehand.formats.delta.table, lakehand.rewrite.run,"
    " lakehand.rewrite.prepare"
)
_FRESH = """
import shutil
place = {work!r}
shutil.rmtree(place, ignore_errors=True)
shutil.copytree({table!r}, place)
"""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One kind of growth."""

    name: str
    #: What grows, and what is done with it.
    unit: str
    work: str
    sizes: tuple[int, ...]
    case: Callable[[Path, int], Case]
    #: What others, and other verbs, do with the same.
    others: Callable[[int], list[Case]] = lambda _: []


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--curves", default=",".join(curve.name for curve in CURVES))
    options.add_argument("--most", type=int, default=GOAL_FILES, help="most files of a log")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    chosen = options.parse_args()
    if not chosen.draw:
        wanted = set(chosen.curves.split(","))
        found = circumstances() | {"runs": chosen.runs, "curves": {}}
        with tempfile.TemporaryDirectory(prefix="lakehand-growth-") as folder:
            for curve in CURVES:
                if curve.name in wanted:
                    found["curves"][curve.name] = points(curve, Path(folder), chosen)
        is_full = len(wanted) == len(CURVES) and chosen.most >= GOAL_FILES
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    drawn = [curve for curve in CURVES if curve.name in found["curves"]]
    PICTURE.write_text(draw_curves([(c.unit, c.work, found["curves"][c.name]) for c in drawn]))
    largest = found["curves"]["files"][-1]
    sys.exit(0 if largest["mib"] <= GOAL_MIB else "a goal is missed")


def points(curve: Curve, folder: Path, chosen: argparse.Namespace) -> list[dict]:
    found = []
    for size in curve.sizes:
        if curve.name == "files" and size > chosen.most:
            continue
        case = curve.case(folder, size)
        measured, *others = measure([case, *curve.others(size)], runs=chosen.runs)
        found.append(_point(measured) | {"size": size, "others": list(map(_point, others))})
        print(f"{curve.name:12} {size:>12,}  {measured.median_cpu_seconds:8.2f} CPU s", flush=True)
        for leftover in folder.iterdir():
            shutil.rmtree(leftover)
    return found


def _point(measured: Measurement) -> dict:
    return {
        "name": measured.name,
        "seconds": measured.median_seconds,
        "mib": measured.peak_mib,
        "cpu_seconds": measured.median_cpu_seconds,
    }


# -- what grows --------------------------------------------------------------------------------


def plan_files(_folder: Path, count: int) -> Case:
    return _plan(_log(file_count=count))


def other_openings(count: int) -> list[Case]:
    place = str(_log(file_count=count))
    opened = f"table = lakehand.open_table({place!r})"
    return [
        Case(name="open", setup=_IMPORTS, work=f"{opened}; table.snapshot()"),
        Case(name="open and inspect", setup=_IMPORTS, work=f"{opened}; table.inspect()"),
        Case(
            name="delta-rs: open",
            setup="from deltalake import DeltaTable",
            work=f"DeltaTable({place!r})",
        ),
    ]


def plan_partitions(_folder: Path, count: int) -> Case:
    return _plan(_log(file_count=300_000, partition_count=count))


def plan_statistics(_folder: Path, count: int) -> Case:
    return _plan(_log(file_count=5_000, column_count=count))


def _log(**shape: int) -> Path:
    return make_log(ROOT / ".cache" / "bench", **shape)


def _plan(table: Path) -> Case:
    work = f"table = lakehand.open_table({str(table)!r}); plan = table.plan()"
    return Case(name="open and plan", setup=_IMPORTS, work=work)


def compact_columns(folder: Path, count: int) -> Case:
    """Compact 20 files of 1,000 rows."""
    chance = np.random.default_rng(1)
    names = [f"column_{number:04}" for number in range(count)]
    return _compact(
        folder, [pa.table({n: chance.integers(0, 1000, 1000) for n in names}) for _ in range(20)]
    )


def compact_rows(folder: Path, count: int) -> Case:
    """Compact files that must be decoded and encoded, because they are small."""
    chance = np.random.default_rng(1)
    files = []
    for start in range(0, count, _ROWS_PER_FILE):
        ids = np.arange(start, start + _ROWS_PER_FILE)
        city = np.array(["Oslo", "Lima", "Pune", "Kyiv"])[chance.integers(0, 4, _ROWS_PER_FILE)]
        x = chance.normal(size=_ROWS_PER_FILE)
        files.append(pa.table({"id": ids, "x": x, "city": city}))
    return _compact(folder, files)


def _compact(folder: Path, files: list[pa.Table]) -> Case:
    import lakehand

    table = lakehand.create_table(folder / "table", files[0].schema)
    for file in files:
        table.append(file)
    fresh = _FRESH.format(work=str(folder / "work"), table=str(folder / "table"))
    work = "lakehand.open_table(place).compact(min_files=2, engine='local')"
    return Case(name="compact", setup=f"{_IMPORTS}\n{fresh}", work=work)


def spark_tasks(folder: Path, count: int) -> Case:
    """Compact as many partitions, each of which is a task on Spark."""
    import lakehand

    days = pa.array([number for number in range(count) for _ in range(4)])
    rows = pa.table({"part": days, "x": pa.array(np.arange(4 * count))})
    table = lakehand.create_table(folder / "table", rows.schema, partition_by=["part"])
    for _ in range(2):
        table.append(rows)
    fresh = _FRESH.format(work=str(folder / "work"), table=str(folder / "table"))
    session = (
        "from lakehand.engine.session import open_session\n"
        "from lakehand.settings import Settings\n"
        "spark, _ = open_session(Settings({}))\n"
        "spark.sparkContext.parallelize(range(4), 4).map(lambda x: x).count()"
    )
    work = "report = lakehand.open_table(place, spark=spark).compact(min_files=2, engine='spark')"
    return Case(name="tasks", setup=f"{_IMPORTS}\n{fresh}\n{session}", work=work)


CURVES = (
    Curve(
        name="files",
        unit="files in the log",
        work="open and plan",
        sizes=(10_000, 1_000_000, 3_000_000, GOAL_FILES),
        case=plan_files,
        others=other_openings,
    ),
    Curve(
        name="partitions",
        unit="partitions of 300,000 files",
        work="open and plan",
        sizes=(10, 10_000, 50_000, 100_000),
        case=plan_partitions,
    ),
    Curve(
        name="statistics",
        unit="columns with statistics, 5,000 files",
        work="open and plan",
        sizes=(10, 500, 1_000, 2_000),
        case=plan_statistics,
    ),
    Curve(
        name="columns",
        unit="columns",
        work="compact 20 files of 1,000 rows",
        sizes=(20, 500, 1_000, 2_000),
        case=compact_columns,
    ),
    Curve(
        name="rows",
        unit="rows, 25,000 in each file",
        work="compact small files",
        sizes=(1_000_000, 5_000_000, 10_000_000),
        case=compact_rows,
    ),
    Curve(
        name="tasks",
        unit="tasks on Spark",
        work="compact a partition each",
        sizes=(10, 250, 500, 1_000),
        case=spark_tasks,
    ),
)


def _table(found: dict) -> str:
    runs = "one run of each" if found["runs"] == 1 else f"medians of {found['runs']} runs"
    lines = [in_words(found, runs)]
    for curve in CURVES:
        if curve.name not in found["curves"]:
            continue
        lines += ["", f"| {curve.unit} | | seconds | CPU s | peak MiB |"]
        lines.append("|---:|---|---:|---:|---:|")
        for point in found["curves"][curve.name]:
            name = f"**lakehand**: {curve.work}"
            lines.append(_row(f"{point['size']:,}", point | {"name": name}))
            lines += [_row("", other) for other in point["others"]]
    return "\n".join(lines)


def _row(size: str, point: dict) -> str:
    figures = f"{point['seconds']:.2f} | {point['cpu_seconds']:.2f} | {point['mib']:,.0f}"
    return f"| {size} | {point['name']} | {figures} |"


SECTION = Section(name="growth", table=_table)


if __name__ == "__main__":
    main()
