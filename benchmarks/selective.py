"""Ten selective queries to tables of the same rows: files that they read, time, and answers.

The queries are every ninth of the fixed set that skip rates are measured with: points and ranges of
1 % and 10 % of the rows, in each of two columns and in both at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from tpch import data_files

from lakehand import open_table
from lakehand.expressions.literals import literal
from lakehand.planning.probes import draw_probes, skip_rate
from lakehand.planning.quantiles import STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from contest import Contender

__all__ = ["Questions"]

#: Computed alike by Spark and DuckDB.
_ANSWER = ("count(*)", "coalesce(cast(sum(l_extendedprice) AS string), '0')")
_STEP = 9


class Questions:
    """The same questions to every table of the rows of `source`."""

    def __init__(self, source: Path, columns: Sequence[str]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET enable_progress_bar = false")
        quantiles = {column: self._quantiles(source, column) for column in columns}
        self._probes = draw_probes(quantiles)
        self._conditions = self._probes.to_sql()[::_STEP]

    def _quantiles(self, source: Path, column: str) -> pa.Array:
        files = [str(path) for path in data_files(source)]
        values = self._connection.sql(
            f"SELECT {column} FROM read_parquet({files}) ORDER BY 1"
        ).to_arrow_table()[column]
        places = np.arange(STEPS + 1) * (len(values) - 1) // STEPS
        return values.take(places).combine_chunks()

    def skip_rate(self, table: Path) -> float:
        """Return the share of the files that the whole set of questions does not read."""
        files = open_table(table).snapshot(statistics=self._probes.columns).files
        return round(skip_rate(files, self._probes).files, 4)

    def by_spark(self, delta_spark: Contender, table: Path) -> dict[str, Any]:
        """Ask through delta-spark, which says which files it reads."""
        _, report = delta_spark.ask(
            "query", table=str(table), conditions=self._conditions, select=_ANSWER
        )
        return report

    def by_duckdb(self, table: Path) -> dict[str, Any]:
        """Ask through DuckDB, of the files that their statistics in the log do not rule out."""
        adds = pa.table(DeltaTable(table).get_add_actions(flatten=True))
        left = [self._left(adds, table, probe.ranges) for probe in self._probes.probes[::_STEP]]
        started = time.perf_counter()
        answers = [
            self._answer(files, where) for files, where in zip(left, self._conditions, strict=True)
        ]
        return {
            "seconds": time.perf_counter() - started,
            "answers": answers,
            "files_read": sum(len(files) for files in left),
        }

    def _left(self, adds: pa.Table, table: Path, ranges: Mapping[str, int]) -> list[str]:
        """Return the files that may hold rows in these ranges; without bounds a file may."""
        terms = []
        for column, at in ranges.items():
            low, high = (side[column][at].as_py() for side in (self._probes.low, self._probes.high))
            terms.append(f'coalesce("min.{column}" <= {literal(high)}, true)')
            terms.append(f'coalesce("max.{column}" >= {literal(low)}, true)')
        self._connection.register("adds", adds)
        found = self._connection.execute(f"SELECT path FROM adds WHERE {' AND '.join(terms)}")
        return [str(table / unquote(path)) for (path,) in found.fetchall()]

    def _answer(self, files: list[str], condition: str) -> list[Any]:
        if not files:
            return [0, "0"]
        select = ", ".join(_ANSWER)
        query = f"SELECT {select} FROM read_parquet({files}) WHERE {condition}"
        [answer] = self._connection.execute(query).fetchall()
        return list(answer)
