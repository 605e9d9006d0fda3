"""What the rewrite of a table costs at least, in CPU seconds, and what lakehand needs for it.

The limit is a program without a table, a plan, a ledger, checksums or statistics in a log: DuckDB
decodes and hashes all rows, Arrow encodes them, new files are synced, and DuckDB reads them back
and hashes them again. It decodes and encodes with the libraries that lakehand uses. All run in
turns, each in a process that has its modules loaded, and lakehand without worker processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
from measure import Case, Measurement, measure
from tpch import link_tree

_SETUP = """
sys.path.insert(0, {here!r})
from limits import fresh_copy, rewrite_all
table = fresh_copy({table!r}, {scratch!r})
"""
_LIMIT = "rewrite_all(table, {scratch!r}, without={without!r}, proves={proves!r})"
_LAKEHAND_SETUP = """
import lakehand
import lakehand.formats.delta.table, lakehand.rewrite.run, lakehand.rewrite.task
from lakehand.engine.inline import HERE
from lakehand.runs import operation
operation.open_runner = lambda *_, **__: HERE
"""
_LAKEHAND = "lakehand.open_table(table).compact(min_files=2, target_file_bytes={target})"
_DELTA_RS = """
from deltalake import DeltaTable, WriterProperties
DeltaTable(str(table)).optimize.compact(
    target_size={target}, writer_properties=WriterProperties(compression="SNAPPY")
)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("table", type=Path, help="a Delta table on local disk; it is not changed")
    options.add_argument("--without", default="false", help="condition of its deleted rows")
    options.add_argument("--target", type=int, default=2**30, help="bytes of a new file")
    options.add_argument("--runs", type=int, default=3)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.table.parent) as scratch:
        found = measure(_cases(chosen, scratch), runs=chosen.runs)
    _print(found)


def _cases(chosen: argparse.Namespace, scratch: str) -> list[Case]:
    values = {
        "here": str(Path(__file__).parent),
        "table": str(chosen.table),
        "scratch": scratch,
        "without": chosen.without,
        "target": chosen.target,
    }
    setup = _SETUP.format(**values)
    return [
        Case(name="decode, encode, sync", setup=setup, work=_LIMIT.format(**values, proves=False)),
        Case(
            name="decode, hash, encode, sync, read back and hash",
            setup=setup,
            work=_LIMIT.format(**values, proves=True),
        ),
        Case(
            name="lakehand compact",
            setup=setup + _LAKEHAND_SETUP,
            work=_LAKEHAND.format(**values),
        ),
        Case(
            name="delta-rs optimize.compact",
            setup=setup + "import deltalake",
            work=_DELTA_RS.format(**values),
        ),
    ]


def fresh_copy(table: str, scratch: str) -> Path:
    """Return a copy of a table, whose files are links."""
    target = Path(scratch, "table")
    shutil.rmtree(target, ignore_errors=True)
    link_tree(Path(table), target)
    return target


def _files_by_directory(table: Path) -> dict[Path, list[str]]:
    """Return the data files of each partition."""
    found: dict[Path, list[str]] = {}
    for path in sorted(table.rglob("*.parquet")):
        if "_delta_log" not in path.parts:
            found.setdefault(path.parent, []).append(str(path))
    return found


def rewrite_all(table: Path, scratch: str, *, without: str, proves: bool) -> None:
    """Rewrite the files of each partition into one."""
    connection = duckdb.connect(config={"preserve_insertion_order": True})
    for number, files in enumerate(_files_by_directory(table).values()):
        target = Path(scratch, f"new-{number}.parquet")
        written = _rewrite(connection, files, target, without=without, proves=proves)
        if proves and written != _digest(connection, target):
            message = f"{target} does not hold the rows that were written"
            raise SystemExit(message)
        target.unlink()


def _rewrite(
    connection: duckdb.DuckDBPyConnection,
    files: list[str],
    target: Path,
    *,
    without: str,
    proves: bool,
) -> int:
    """Write the rows of files into one, and return the sum of their hashes if it `proves`."""
    hashed = ", hash(given) AS limits_hash" if proves else ""
    query = f"SELECT *{hashed} FROM read_parquet(?, hive_partitioning=false) AS given"
    reader = connection.execute(f"{query} WHERE NOT ({without})", [files]).to_arrow_reader(2**17)
    schema = reader.schema
    if proves:
        schema = schema.remove(schema.get_field_index("limits_hash"))
    total = 0
    with target.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression="snappy") as writer:
            for batch in reader:
                if proves:
                    total += int(np.sum(batch["limits_hash"].to_numpy(), dtype=np.uint64))
                    batch = batch.drop_columns(["limits_hash"])  # noqa: PLW2901  the same rows
                writer.write_batch(batch, row_group_size=2**20)
        file.flush()
        os.fsync(file.fileno())
    return total % 2**64


def _digest(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    query = "SELECT sum(hash(given)::HUGEINT) FROM read_parquet(?) AS given"
    (total,) = connection.execute(query, [str(path)]).fetchone()
    return int(total) % 2**64


def _print(found: list[Measurement]) -> None:
    limit = found[1].median_cpu_seconds
    print(f"{'':48} {'CPU s':>8} {'ratio':>7} {'s':>7} {'MiB':>7}")
    for one in found:
        print(
            f"{one.name:48} {one.median_cpu_seconds:8.2f} {one.median_cpu_seconds / limit:6.2f}x"
            f" {one.median_seconds:7.2f} {one.peak_mib:7.0f}"
        )


if __name__ == "__main__":
    main()
