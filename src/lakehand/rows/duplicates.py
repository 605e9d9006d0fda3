"""The tasks that find duplicates: hashes of keys, then the keys of those whose hashes are equal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine.runner_contract import granted_cores
from lakehand.errors import CorruptFileError, EngineError
from lakehand.formats.rows import PlacedColumns, RowChangeWorker
from lakehand.formats.worker import Decoder, NotDecodable, TaskLimits
from lakehand.model.work import DataFile
from lakehand.rows.row_addresses import PlaceSet
from lakehand.rows.row_operation import open_session, query_tables
from lakehand.rows.table_exchange import Exchange, Partitions, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.rows.key_equality import KeyEquality

#: What a number takes while it is compared, with twelve bytes that come with it.
BYTES_A_ROW = 64
_HALF = np.uint64(32)
#: Above this share (one in 16), all numbers are sorted with their places.
_FEW = 16
#: Bits of a map of numbers for each one that is in it; and of all, at most.
_MAP_BITS, _MOST_MAP_BITS = 6, 27


def has_turn(hashes: npt.NDArray[np.uint64], turn: int, *, turns: int) -> npt.NDArray[np.bool_]:
    """Say which hashes are compared in a turn. Equal ones have the same, and each has one."""
    # By the upper half: whose hashes these are was told by what is left of a division.
    found: npt.NDArray[np.bool_] = (hashes >> _HALF) % np.uint64(turns) == np.uint64(turn)
    return found


def with_twins(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the places of hashes that occur more than once, ascending."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) * _FEW > len(hashes):
        return _by_order(hashes)
    return _by_map(hashes, repeated) if len(repeated) else np.empty(0, np.int64)


def _by_order(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    places = np.argsort(hashes)
    ordered = hashes[places]
    is_next = ordered[1:] == ordered[:-1]
    is_twin = np.zeros(len(hashes), np.bool_)
    is_twin[1:] |= is_next
    is_twin[:-1] |= is_next
    return np.sort(places[is_twin])


def _by_map(
    hashes: npt.NDArray[np.uint64], repeated: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Look all hashes up in a small map, and what it does not rule out among those `repeated`."""
    bits = min(len(repeated).bit_length() + _MAP_BITS, _MOST_MAP_BITS)
    shift = np.uint64(64 - bits)
    is_possible = np.zeros(2**bits, np.bool_)
    is_possible[repeated >> shift] = True
    places = np.flatnonzero(is_possible[hashes >> shift])
    possible = hashes[places]
    found = np.minimum(np.searchsorted(repeated, possible), len(repeated) - 1)
    twins: npt.NDArray[np.int64] = places[repeated[found] == possible]
    return twins


_HASH = "hash"


@dataclass(frozen=True, kw_only=True, slots=True)
class Searching:
    """What all tasks of a search know. Picklable."""

    worker: RowChangeWorker
    exchange: Exchange
    equality: KeyEquality
    limits: TaskLimits
    #: How many tasks share the hashes.
    partitions: int

    def granted_limits(self) -> TaskLimits:
        return replace(self.limits, threads=granted_cores())

    def partition(self, name: str) -> Partitions:
        return Partitions(self.exchange, name, column=_HASH, count=self.partitions)


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
        query = search.equality.hash_query("batch")
        wanted = PlacedColumns(columns=search.equality.columns)
        rows = np.zeros(len(files), np.int64)
        with open_session(limits) as session:
            placed = search.worker.read_placed(files, wanted, limits=limits, decoder=decoder)
            for table in query_tables(placed):
                session.register("batch", table)
                hashed = session.sql(query).to_arrow_table()
                rows += np.bincount(hashed["number"], minlength=len(files))
                hashes.add(_with_files(hashed, payload["numbers"]))
        return {"pieces": hashes.close(), "rows": rows.tolist()}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareTask:
    """From the hashes of one partition to the rows whose hashes are not the only ones."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        portion_of = _portions_of(payload)
        turns = max(1, -(-payload["rows"] * BYTES_A_ROW // self.search.limits.memory_bytes))
        twins = pa.concat_tables(
            self._twins(payload["keys"], portion_of, turn, turns) for turn in range(turns)
        )
        name = f"twins-{payload['name']}"
        return {"pieces": _leave(self.search.exchange, name, twins, portion_of)}

    def _twins(
        self, keys: Sequence[str], portion_of: npt.NDArray[np.int32], turn: int, turns: int
    ) -> pa.Table:
        """Return rows of live files, those whose turn it is, that share their hash with others."""
        pieces = []
        for piece in self.search.exchange.get(keys):
            chosen = portion_of[piece["file"].to_numpy()] >= 0
            if turns > 1:
                chosen &= has_turn(piece[_HASH].to_numpy(), turn, turns=turns)
            pieces.append(piece if chosen.all() else piece.filter(pa.array(chosen)))
        rows = pa.concat_tables(pieces)
        return rows.take(pa.array(with_twins(rows[_HASH].to_numpy())))


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
        wanted = PlacedColumns(columns=search.equality.columns_and_order, row_identity=tracked)
        query = search.equality.values_query("batch", "known", is_tracked=tracked)
        rows = 0
        with open_session(limits) as session:
            session.register("known", known)
            placed = search.worker.read_placed(files, wanted, limits=limits, decoder=decoder)
            for table in query_tables(PlaceSet(_positions(twins, known)).filter(placed)):
                session.register("batch", table)
                values = session.sql(query).to_arrow_table()
                found.add(values)
                rows += values.num_rows
        if rows != twins.num_rows:
            message = f"{twins.num_rows} rows were read, and {rows} when they were read again"
            raise CorruptFileError(message, hint="files changed during the run; verify the table")
        return {"pieces": found.close()}


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTask:
    """From the values of one partition to the rows that another one stands for."""

    search: Searching

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        search, portion_of = self.search, _portions_of(payload)
        with open_session(search.granted_limits()) as session:
            for number, piece in enumerate(search.exchange.get(payload["keys"])):
                session.register("piece", piece)
                verb = "INSERT INTO twins" if number else "CREATE TEMP TABLE twins AS"
                session.execute(f"{verb} SELECT * FROM piece")
            winners = search.equality.winners_query("twins")
            session.execute(f"CREATE TEMP TABLE winners AS {winners}")
            losers = session.sql(
                "SELECT file, position FROM twins ANTI JOIN"
                " (SELECT kept.file, kept.position FROM winners) USING (file, position)"
            ).to_arrow_table()
            distribution = session.sql(
                "SELECT copies - 1, count(*) FROM winners WHERE copies > 1"
                " GROUP BY ALL ORDER BY ALL"
            ).fetchall()
        _require_all(losers.num_rows, sum(extra * keys for extra, keys in distribution))
        counts = np.bincount(losers["file"].to_numpy())
        return {
            "pieces": _leave(search.exchange, f"losers-{payload['name']}", losers, portion_of),
            "by_file": [(int(file), int(counts[file])) for file in np.flatnonzero(counts)],
            "distribution": distribution,
        }


def _require_all(losers: int, expected: int) -> None:
    """Raise EngineError unless of each key all rows but one go."""
    if losers != expected:
        message = f"{losers} rows would go, and {expected} are too many"
        raise EngineError(message, hint="nothing was written; please report it")


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


def _positions(twins: pa.Table, known: pa.Table) -> list[npt.NDArray[np.int64]]:
    """Return where the suspects of each file lie."""
    files, positions = twins["file"].to_numpy(), twins["position"].to_numpy()
    order = np.argsort(files, kind="stable")
    files, positions = files[order], positions[order]
    numbers = known["file"].to_numpy()
    starts, ends = np.searchsorted(files, numbers), np.searchsorted(files, numbers, side="right")
    return [positions[start:end] for start, end in zip(starts, ends, strict=True)]


def _portions_of(payload: Mapping[str, Any]) -> npt.NDArray[np.int32]:
    """Return the portion of each file, by number; -1 for those that do not count any more."""
    found = np.full(payload["file_count"], -1, np.int32)
    for portion, files in enumerate(payload["portions"]):
        found[files] = portion
    return found


def _leave(
    exchange: Exchange, name: str, rows: pa.Table, portion_of: npt.NDArray[np.int32]
) -> list[Piece]:
    """Leave rows for the tasks of the portions that their files are in."""
    portions = portion_of[rows["file"].to_numpy()]
    pieces = []
    for portion in np.flatnonzero(np.bincount(portions)).tolist():
        chosen = rows.filter(pa.array(portions == portion))
        pieces.append((portion, exchange.put(f"{name}-{portion:06d}", chosen), chosen.num_rows))
    return pieces
