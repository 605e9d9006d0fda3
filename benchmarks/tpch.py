"""TPC-H's lineitem as three tables that need compaction, made once by `tpchgen-cli` and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The scale factor at which the goals are set: 30 million rows.
FULL_SCALE = 5.0
#: Every twentieth row; computable by all engines alike.
DELETED = "(l_orderkey + l_linenumber) % 20 = 0"
PARTITION_COLUMN = "l_shipmode"

_PARTS = 10
_LARGE_TARGET_BYTES = 640_000_000
_TINY_FILES, _TINY_ROWS = 1_000, 9_000
_DELETED_PARTS, _DELETED_FILES_A_PARTITION = 2, 8
_MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A table, and what it is to become."""

    name: str
    table: Path
    target_file_bytes: int
    #: Files that those without a planner of their own write, in each partition.
    files_out: int
    partition_by: str | None = None
    #: Condition of the rows that deletion vectors hide.
    deleted: str | None = None
    #: What is special about the files, for the title.
    remark: str = ""


def large(cache: Path, scale: float) -> Workload:
    """Ten files of healthy row groups, to become two."""
    return Workload(
        name="large",
        table=_made(cache / f"lineitem-{scale:g}-large", lambda path: _make_large(path, scale)),
        target_file_bytes=int(_LARGE_TARGET_BYTES * scale / FULL_SCALE),
        files_out=2,
    )


def tiny(cache: Path, scale: float) -> Workload:
    """A thousand files of 9,000 rows, to become one."""
    source = large(cache, scale).table
    count = max(20, int(_TINY_FILES * scale / FULL_SCALE))
    path = cache / f"lineitem-{scale:g}-tiny"
    return Workload(
        name="tiny",
        table=_made(path, lambda target: _make_tiny(_parts_of(source), target, count)),
        target_file_bytes=1024 * _MIB,
        files_out=1,
    )


def deleted(cache: Path, scale: float, make: Callable[[list[Path], Path], None]) -> Workload:
    """Seven partitions of eight files each, a twentieth of the rows hidden by deletion vectors."""
    sources = _parts_of(large(cache, scale).table)[:_DELETED_PARTS]
    return Workload(
        name="deleted",
        remark=" in 7 partitions, 5 % of the rows deleted",
        table=_made(cache / f"lineitem-{scale:g}-deleted", lambda path: make(sources, path)),
        target_file_bytes=128 * _MIB,
        files_out=1,
        partition_by=PARTITION_COLUMN,
        deleted=DELETED,
    )


def warm_up(cache: Path) -> Workload:
    """A table that is compacted before anything is measured."""
    source = large(cache, scale=0.1).table
    return Workload(
        name="warm-up",
        table=_made(cache / "lineitem-warm", lambda path: _make_tiny(_parts_of(source), path, 8)),
        target_file_bytes=128 * _MIB,
        files_out=1,
    )


def delete_with_spark(spark: object, sources: list[Path], target: Path) -> None:
    """Have delta-spark write the table and delete from it, as its users do."""
    frame = spark.read.parquet(*map(str, sources)).repartition(_DELETED_FILES_A_PARTITION)
    writer = frame.write.format("delta").partitionBy(PARTITION_COLUMN)
    writer.option("delta.enableDeletionVectors", "true").save(str(target))
    spark.sql(f"DELETE FROM delta.`{target}` WHERE {DELETED}")


def link_tree(table: Path, target: Path) -> None:
    """Copy a table: data files as links, which nobody writes into, the log as files."""
    shutil.copytree(table, target, copy_function=os.link, ignore=shutil.ignore_patterns("_*"))
    shutil.copytree(table / "_delta_log", target / "_delta_log")


def data_files(table: Path) -> list[Path]:
    """Return the Parquet files outside of the log; in a table never rewritten all are live."""
    return sorted(path for path in table.rglob("*.parquet") if "_delta_log" not in path.parts)


def _made(path: Path, make: Callable[[Path], None]) -> Path:
    """Return `path`, made by `make` if it is not there; half a table is never taken for one."""
    if not path.is_dir():
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        print(f"making {path.name}", file=sys.stderr)
        make(unfinished)
        unfinished.rename(path)
    return path


def _make_large(target: Path, scale: float) -> None:
    made = target.with_name(f"{target.name}.generated")
    shutil.rmtree(made, ignore_errors=True)
    generator = Path(sys.executable).with_name("tpchgen-cli")
    command = [generator, "parquet", "-q", "-s", f"{scale:g}", "-T", "lineitem", "-p", str(_PARTS)]
    subprocess.run([*command, "-c", "SNAPPY", "-o", made], check=True, timeout=900)
    (made / "lineitem").rename(target)
    made.rmdir()
    convert_to_deltalake(str(target))


def _make_tiny(sources: list[Path], target: Path, count: int) -> None:
    target.mkdir(parents=True)
    for number, rows in zip(range(count), _slices(sources), strict=False):
        pq.write_table(rows, target / f"part-{number:05}.parquet", compression="snappy")
    convert_to_deltalake(str(target))


def _slices(sources: list[Path]) -> Iterator[pa.Table]:
    for source in sources:
        rows = pq.read_table(source)
        for start in range(0, len(rows) - _TINY_ROWS, _TINY_ROWS):
            yield rows.slice(start, _TINY_ROWS)


def _parts_of(table: Path) -> list[Path]:
    """Return the parts of lineitem in the order of their numbers."""
    return sorted(table.glob("lineitem.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
