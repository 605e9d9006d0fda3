"""Rows of a table whose keys come in: where they are, and which of them another row replaces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine.runner_contract import granted_cores
from lakehand.formats.rows import PlacedColumns, RowChangeWorker
from lakehand.formats.worker import Decoder, NotDecodable, TaskLimits
from lakehand.model.snapshot import FILE_NUMBER, POSITION
from lakehand.model.work import DataFile
from lakehand.rows.incoming import LIVE, NUMBER, Incoming, KeyColumns
from lakehand.rows.read_once import Chosen, ChosenFiles, RowSearch, put_in_pieces
from lakehand.rows.row_addresses import check_count
from lakehand.rows.row_operation import RowOperation, open_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.rows.table_exchange import Exchange

    Numbers = npt.NDArray[np.int64]

#: Keys are what a join holds in memory, whatever DuckDB would choose.
CHOICE_OF_SIDES = "build_side_probe_side,join_order"


def put_matches(exchange: Exchange, payload: Mapping[str, Any], found: pa.Table) -> str | None:
    """Store what a task found, under the table's numbers of its files; None: it found nothing."""
    if not found.num_rows:
        return None
    numbers = pa.array(payload["numbers"], pa.int32())
    named = found.set_column(0, "file", numbers.take(found["file"].combine_chunks()))
    return exchange.put(f"matches-{payload['portion']:06d}", named)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyMatchTask:
    """From files to the places of rows whose keys come in. Picklable."""

    worker: RowChangeWorker
    exchange: Exchange
    key: KeyColumns
    #: Objects with the keys.
    incoming: tuple[str, ...]
    limits: TaskLimits

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        try:
            seen, found = self._match(files, "duckdb")
        except NotDecodable:
            seen, found = self._match(files, "arrow")
        for file, rows in zip(files, seen.tolist(), strict=True):
            check_count(file, rows)
        counts = np.bincount(found["file"].to_numpy(), minlength=len(files))
        return {"key": put_matches(self.exchange, payload, found), "rows": counts.tolist()}

    def _match(self, files: Sequence[DataFile], decoder: Decoder) -> tuple[Numbers, pa.Table]:
        """Return how many rows each file has, and the rows among them that have a key."""
        limits = replace(self.limits, threads=granted_cores())
        tracked = self.worker.tracks_rows
        wanted = PlacedColumns(columns=self.key.names, row_identity=tracked)
        batches = self.worker.read_placed(files, wanted, limits=limits, decoder=decoder)
        schema = self._read_schema(is_tracked=tracked)
        rows = _Counted(batches, schema, files=len(files))
        with open_session(limits, without_optimizers=CHOICE_OF_SIDES) as session:
            self._load(session)
            session.register("given", pa.RecordBatchReader.from_batches(schema, iter(rows)))
            try:
                found = session.sql(self._query(is_tracked=tracked)).to_arrow_table()
            except duckdb.Error as error:
                raise rows.failure or error from None
        return rows.seen, found

    def _load(self, session: Any) -> None:
        """Take in the keys."""
        names, values = self.key.keys("k"), self.key.values("k")
        columns = ", ".join(f"{v} AS {n}" for n, v in zip(names, values, strict=True))
        for number, piece in enumerate(self.exchange.get(self.incoming)):
            session.register("piece", piece)
            verb = "INSERT INTO incoming" if number else "CREATE TEMP TABLE incoming AS"
            session.execute(f"{verb} SELECT {columns}, {NUMBER} AS source, {LIVE} FROM piece")
            session.unregister("piece")

    def _query(self, *, is_tracked: bool) -> str:
        names = [*self.key.keys("u"), *(["row_id", "row_version"] if is_tracked else [])]
        row_id = "row_id" if is_tracked else "NULL::BIGINT AS row_id"
        equal = self.key.equal(self.key.values("u"), self.key.keys("k"))
        return (
            f"SELECT number AS file, position, source AS {NUMBER}, {LIVE}, {row_id}"
            f" FROM given AS rows({', '.join([*names, 'number', 'position'])})"
            f" JOIN incoming ON {equal}"
        )

    def _read_schema(self, *, is_tracked: bool) -> pa.Schema:
        """Return what is read of rows: their keys, who they are, and where."""
        names = ["row_id", "row_version"] if is_tracked else []
        identity = [(name, pa.int64()) for name in names]
        places = [(FILE_NUMBER, pa.int32()), (POSITION, pa.int64())]
        return pa.schema([*self.key.schema, *identity, *places])


class _Counted:
    """Rows passed to DuckDB, counted by file. Keeps an error, which DuckDB would wrap."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, files: int) -> None:
        self._batches = batches
        self._schema = schema
        self.seen: Numbers = np.zeros(files, np.int64)
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                numbers = batch.column(FILE_NUMBER).to_numpy()
                self.seen += np.bincount(numbers, minlength=len(self.seen))
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        except BaseException as error:
            self.failure = error
            raise


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Matched:
    """Which incoming rows have a row in the table."""

    #: Their numbers, ascending, each once.
    numbers: Numbers
    #: Ids of the rows that they replace, where the table tracks rows.
    row_ids: pa.Array
    #: Rows of the table that go and that nothing replaces.
    deleted: int


class KeyMatching(RowSearch):
    """Finds the rows of a table that an upsert is about. Files are not read twice for it."""

    matched: Matched

    def __init__(self, operation: RowOperation, incoming: Incoming, files: ChosenFiles) -> None:
        """`files` says which files may hold one of the keys."""
        super().__init__(operation, files)
        self._incoming = incoming
        self._keys = put_in_pieces(operation, incoming.winners)

    def _resolve(self, found: Sequence[pa.Table]) -> Chosen:
        self.matched, replaced = _resolve(found)
        return Chosen(replaced=replaced)

    def _task(self) -> KeyMatchTask:
        return KeyMatchTask(
            worker=self._operation.worker,
            exchange=self._operation.exchange,
            key=self._incoming.key,
            incoming=self._keys,
            limits=self._operation.limits,
        )


def _resolve(tables: Sequence[pa.Table]) -> tuple[Matched, np.ndarray]:
    """Say which rows are replaced: of several with one key the first, and the others go."""
    if not tables:
        empty = np.empty(0, np.int64)
        matched = Matched(numbers=empty, row_ids=pa.array(empty), deleted=0)
        return matched, np.empty(0, np.bool_)
    found = pa.concat_tables(tables)
    numbers = found[NUMBER].to_numpy()
    live = found[LIVE].cast(pa.uint8()).to_numpy().astype(np.bool_)
    ids = found["row_id"].combine_chunks()
    age = pc.fill_null(ids, -1).to_numpy()
    order = np.lexsort((found["position"].to_numpy(), found["file"].to_numpy(), age, numbers))
    is_first = np.diff(numbers[order], prepend=-1) != 0
    replaced = np.zeros(len(numbers), np.bool_)
    replaced[order] = is_first & live[order]
    chosen = order[replaced[order]]
    matched = Matched(
        numbers=numbers[chosen],
        row_ids=ids.take(pa.array(chosen)),
        deleted=len(numbers) - len(chosen),
    )
    return matched, replaced
