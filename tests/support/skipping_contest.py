"""The same rows laid out by several hands, and what the same questions skip of each layout."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

import lakehand
from lakehand.planning.file_bounds import extents_of
from lakehand.planning.overlap import overlap_depth
from lakehand.planning.probes import ProbeSet, draw_probes, skip_rate
from lakehand.planning.quantiles import quantiles_of_values

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.model.order import Curve
    from support.oracle import Oracle

__all__ = [
    "Layout",
    "Spread",
    "by_delta_spark",
    "by_lakehand",
    "make_rows",
    "measured",
    "questions",
]

_TRIES = 6

Spread = Literal["uniform", "skewed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How one contender laid out the rows."""

    files: int
    skip_rate: float
    overlap_depth: float


def make_rows(rows: int, columns: int, spread: Spread, *, seed: int = 5) -> pa.Table:
    """Return columns a, b, … that have nothing to do with each other, and one that is not asked."""
    random = np.random.default_rng(seed)
    names = "abcd"[:columns]
    if spread == "uniform":
        values = {name: random.integers(0, 10**9, rows) for name in names}
    else:
        values = {name: (random.pareto(1.2, rows) * 1000).astype(np.int64) for name in names}
    return pa.table({**values, "payload": random.random(rows)})


def questions(rows: pa.Table) -> ProbeSet:
    """Draw the fixed set of questions from the rows themselves."""
    names = [name for name in rows.column_names if name != "payload"]
    return draw_probes({name: quantiles_of_values(rows[name].combine_chunks()) for name in names})


def by_delta_spark(
    oracle: Oracle, path: Path, rows: pa.Table, probes: ProbeSet, *, way: str, file_bytes: int
) -> Layout:
    """Let delta-spark lay out the rows: `liquid` (CLUSTER BY, then OPTIMIZE) or `zorder`."""
    source = path.with_suffix(".parquet")
    pq.write_table(rows, source)
    by = ", ".join(probes.columns)
    types = ", ".join(f"{field.name} {_sql_type(field.type)}" for field in rows.schema)
    clause = f"CLUSTER BY ({by})" if way == "liquid" else ""
    oracle.sql(f"CREATE TABLE delta.`{path}` ({types}) USING delta {clause}")
    oracle.sql(f"INSERT INTO delta.`{path}` SELECT * FROM parquet.`{source}`")
    with oracle.configured({"spark.databricks.delta.optimize.maxFileSize": str(file_bytes)}):
        oracle.sql(f"OPTIMIZE delta.`{path}`" + (f" ZORDER BY ({by})" if way == "zorder" else ""))
    return measured(path, probes)


def by_lakehand(
    path: Path, rows: pa.Table, probes: ProbeSet, *, curve: Curve, files: int
) -> Layout:
    """Lay out the rows with `cluster` in about so many files, never more: more skip more."""
    wanted = float(files)
    best: Layout | None = None
    for _ in range(_TRIES):
        layout = _clustered(path, rows, probes, curve=curve, files=wanted)
        if layout.files <= files and (best is None or layout.files > best.files):
            best = layout
        if layout.files == files:
            break
        wanted *= (files - 0.25) / layout.files
    assert best is not None
    return best


def _clustered(
    path: Path, rows: pa.Table, probes: ProbeSet, *, curve: Curve, files: float
) -> Layout:
    shutil.rmtree(path, ignore_errors=True)
    write_deltalake(str(path), rows)
    table = lakehand.open_table(path)
    target = round(table.inspect().total_bytes / files)
    columns = list(probes.columns)
    table.cluster(by=columns, curve=curve, full=True, target_file_bytes=target, engine="local")
    return measured(path, probes)


def measured(path: Path, probes: ProbeSet) -> Layout:
    files = lakehand.open_table(path).snapshot(statistics=probes.columns).files
    return Layout(
        files=files.num_rows,
        skip_rate=skip_rate(files, probes).files,
        overlap_depth=overlap_depth(extents_of(files, probes.columns)).average,
    )


def _sql_type(type_: pa.DataType) -> str:
    return "BIGINT" if pa.types.is_integer(type_) else "DOUBLE"
