"""The tasks that find duplicates: hashes of keys, then the keys of those whose hashes are equal.

Hashes are small, so all rows of a table can be compared by them. What they find is no more than a
suspicion: only rows whose values are equal, too, are duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine.cores import granted_cores
from lakehand.errors import CorruptFileError
from lakehand.formats.rows import PlacedColumns
from lakehand.formats.worker import NotDecodable
from lakehand.model.work import DataFile
from lakehand.rows.exchange import Partitions
from lakehand.rows.session import gathered, open_session, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import duckdb

    from lakehand.formats.worker import Decoder, FormatWorker, TaskLimits
    from lakehand.rows.exchange import Exchange, Piece
    from lakehand.rows.sameness import Sameness

__all__ = ["CompareTask", "HashTask", "RankTask", "Searching", "ValuesTask"]

_LANE = "lane_1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Searching:
    """What all tasks of a search know. Picklable."""

    worker: FormatWorker
    exchange: Exchange
    sameness: Sameness
    limits: TaskLimits
    #: How many tasks share the hashes.
    partitions: int

    def granted_limits(self) -> TaskLimits:
        return replace(self.limits, threads=granted_cores())

    def partition(self, name: str) -> Partitions:
        return Partitions(self.exchange, name, column=_LANE, count=self.partitions)


@dataclass(frozen=True, kw_only=True, slots=True)
class HashTask:
    """From files to the hashes of their rows, divided by hash."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        return _decoding(lambda decoder: self._hash(payload, files, decoder))

    def _hash(
        self, payload: Mapping[str, Any], files: Sequence[DataFile], decoder: Decoder
    ) -> dict[str, Any]:
        search, limits = self.search, self.search.granted_limits()
        hashes = search.partition(f"hashes-{payload['portion']:06d}")
        query = search.sameness.hash_query("batch")
        wanted = PlacedColumns(columns=search.sameness.columns)
        rows = np.zeros(len(files), np.int64)
        with open_session(limits) as session:
            for table in gathered(
                search.worker.read_placed(files, wanted, limits=limits, decoder=decoder)
            ):
                session.register("batch", table)
                hashed = session.sql(query).to_arrow_table()
                rows += np.bincount(hashed["number"].to_numpy(), minlength=len(files))
                hashes.add(_with_files(hashed, payload["numbers"]))
        return {"pieces": hashes.close(), "rows": rows.tolist()}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareTask:
    """From the hashes of one partition to the rows whose hashes are not the only ones."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        with open_session(self.search.granted_limits()) as session:
            _load_live(session, payload["portions"])
            session.execute(
                "CREATE TEMP TABLE hashes"
                "(lane_1 UBIGINT, lane_2 UBIGINT, position BIGINT, file INTEGER)"
            )
            for piece in self.search.exchange.get(payload["keys"]):
                session.register("piece", piece)
                of_live = "SELECT piece.* FROM piece SEMI JOIN live USING (file)"
                session.execute(f"INSERT INTO hashes BY NAME {of_live}")
            reader = session.sql(
                "SELECT portion, lane_1, lane_2, position, file FROM hashes JOIN live USING (file)"
                " WHERE (lane_1, lane_2) IN"
                " (SELECT (lane_1, lane_2) FROM hashes GROUP BY lane_1, lane_2 HAVING count(*) > 1)"
                " ORDER BY portion, file, position"
            ).to_arrow_reader()
            return {"pieces": _leave(self.search.exchange, f"twins-{payload['name']}", reader)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ValuesTask:
    """From rows whose hashes are not the only ones to their values, divided by hash."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return _decoding(lambda decoder: self._values(payload, decoder))

    def _values(self, payload: Mapping[str, Any], decoder: Decoder) -> dict[str, Any]:
        search, limits = self.search, self.search.granted_limits()
        twins = pa.concat_tables(search.exchange.get(payload["keys"]))
        known = _files_with(twins, payload)
        files = [
            DataFile.from_json(payload["files"][place]) for place in known["place"].to_pylist()
        ]
        found = search.partition(f"values-{payload['name']}")
        tracked = search.worker.tracks_rows
        wanted = PlacedColumns(columns=search.sameness.columns_and_order, row_identity=tracked)
        query = search.sameness.values_query("batch", "twins", is_tracked=tracked)
        rows = 0
        with open_session(limits) as session:
            session.register("listed", twins)
            session.register("known", known)
            session.execute("CREATE TEMP TABLE twins AS FROM listed JOIN known USING (file)")
            for table in gathered(
                search.worker.read_placed(files, wanted, limits=limits, decoder=decoder)
            ):
                session.register("batch", table)
                values = session.sql(query).to_arrow_table()
                found.add(values)
                rows += values.num_rows
        if rows != twins.num_rows:
            message = f"{twins.num_rows} rows were read, and {rows} when they were read again"
            raise CorruptFileError(message, hint="files were changed meanwhile; verify the table")
        return {"pieces": found.close()}


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTask:
    """From the values of one partition to the rows that another one stands for."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        search = self.search
        with open_session(search.granted_limits()) as session:
            _load_live(session, payload["portions"])
            for number, piece in enumerate(search.exchange.get(payload["keys"])):
                session.register("piece", piece)
                verb = "INSERT INTO twins" if number else "CREATE TEMP TABLE twins AS"
                session.execute(f"{verb} SELECT * FROM piece")
            ranked = search.sameness.rank_query("twins")
            session.execute(f"CREATE TEMP TABLE ranked AS {ranked}")
            reader = session.sql(
                "SELECT portion, file, position FROM ranked JOIN live USING (file) WHERE place > 1"
                " ORDER BY portion, file, position"
            ).to_arrow_reader()
            return {
                "pieces": _leave(search.exchange, f"losers-{payload['name']}", reader),
                "by_file": session.sql(
                    "SELECT file, count(*) FROM ranked WHERE place > 1 GROUP BY file ORDER BY file"
                ).fetchall(),
                "distribution": session.sql(
                    "SELECT copies - 1, count(*) FROM ranked WHERE place = 1 AND copies > 1"
                    " GROUP BY ALL ORDER BY ALL"
                ).fetchall(),
            }


def _decoding(read: Callable[[Decoder], dict[str, Any]]) -> dict[str, Any]:
    """Let DuckDB decode, and Arrow where DuckDB gives up."""
    try:
        return read("duckdb")
    except NotDecodable:
        return read("arrow")


def _with_files(hashed: pa.Table, numbers: Sequence[int]) -> pa.Table:
    """Give files the numbers that the search knows them by."""
    files = pa.array(numbers, pa.int32()).take(hashed["number"].combine_chunks())
    return hashed.drop_columns(["number"]).append_column("file", files)


def _files_with(twins: pa.Table, payload: Mapping[str, Any]) -> pa.Table:
    """Return the files of a portion that hold suspects, as they are numbered when they are read."""
    portion = pa.table(
        {
            "file": pa.array(payload["numbers"], pa.int32()),
            "file_rank": pa.array(payload["ranks"], pa.int64()),
            "place": pa.array(range(len(payload["numbers"])), pa.int32()),
        }
    )
    chosen = portion.filter(pc.is_in(portion["file"], value_set=pc.unique(twins["file"])))
    return chosen.append_column("number", pa.array(range(len(chosen)), pa.int32()))


def _load_live(session: duckdb.DuckDBPyConnection, portions: Sequence[Sequence[int]]) -> None:
    """Make a table of the files that count, with the portion that each is in."""
    pairs = [(file, number) for number, files in enumerate(portions) for file in files]
    live = {
        "file": pa.array([file for file, _ in pairs], pa.int32()),
        "portion": pa.array([portion for _, portion in pairs], pa.int32()),
    }
    session.register("live", pa.table(live))


def _leave(exchange: Exchange, name: str, reader: pa.RecordBatchReader) -> list[Piece]:
    """Leave rows, ordered by portion, for the tasks of their portions."""
    return [
        (portion, exchange.put(f"{name}-{portion:06d}", rows), rows.num_rows)
        for portion, rows in runs_of(reader, "portion")
    ]
