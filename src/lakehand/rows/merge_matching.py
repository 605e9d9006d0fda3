"""Which rows of a table a merge changes, by which row of the source, and by which clause.

Tasks join the rows of their files with the whole source, of which they get the columns that
conditions read. The source is what a join holds in memory or spills; files stream through it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from lakehand.engine.runner_contract import granted_cores
from lakehand.errors import MultipleMatchesError, PredicateError
from lakehand.formats.rows import PlacedColumns, RowChangeWorker
from lakehand.formats.worker import Decoder, NotDecodable, TaskLimits
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID
from lakehand.model.work import DataFile
from lakehand.rows.incoming import NUMBER
from lakehand.rows.key_matching import CHOICE_OF_SIDES, put_matches
from lakehand.rows.read_once import Chosen, ChosenFiles, RowSearch, put_in_pieces
from lakehand.rows.row_addresses import PlaceSet, check_count
from lakehand.rows.row_operation import RowOperation, open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.expressions.two_tables import TwoTableCalculator
    from lakehand.rows.merge_clauses import MergeSpec
    from lakehand.rows.merge_conditions import Decisions, MergeConditions, PairConditions
    from lakehand.rows.merge_source import MergeSource
    from lakehand.rows.table_exchange import Exchange

    Numbers = npt.NDArray[np.int64]

#: Column with the number of the clause that decides over a row; -1: the row is unchanged.
CLAUSE = "clause"
#: Number of the source row of a row that matches none.
NO_SOURCE = -1
#: As for predicates: it rewrites expressions so that an overflow is no error any more.
_WITHOUT = f"{CHOICE_OF_SIDES},expression_rewriter"
#: What tasks find, one row per pair, or per row of the table that matches no row of the source.
_FOUND = pa.schema(
    [
        ("file", pa.int32()),
        ("position", pa.int64()),
        (NUMBER, pa.int64()),
        (CLAUSE, pa.int16()),
        ("row_id", pa.int64()),
    ]
)
_ROWS_A_BATCH = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeMatchTask:
    """From files to the rows in them that a merge changes. Picklable."""

    worker: RowChangeWorker
    exchange: Exchange
    conditions: MergeConditions
    #: Objects with the columns of the source that conditions read, and the numbers of its rows.
    incoming: tuple[str, ...]
    limits: TaskLimits

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        try:
            found = self._match(files, "duckdb")
        except NotDecodable:
            found = self._match(files, "arrow")
        places, acts = found["file"].to_numpy(), found[CLAUSE].to_numpy() >= 0
        counts = np.bincount(places[acts], minlength=len(files))
        return {"key": put_matches(self.exchange, payload, found), "rows": counts.tolist()}

    def _match(self, files: Sequence[DataFile], decoder: Decoder) -> pa.Table:
        pairs = self._pairs(files, decoder)
        matched = pa.concat_tables(pairs) if pairs else _FOUND.empty_table()
        spec = self.conditions.spec
        alone = self._alone(files, matched, decoder) if _changes_alone(spec) else []
        if spec.deletes_matches:
            matched = _each_place_once(matched)
        if not any(True for _ in spec.of_kind("not_matched")):
            matched = matched.filter(pa.array(matched[CLAUSE].to_numpy() >= 0))
        return pa.concat_tables([matched, *alone])

    def _pairs(self, files: Sequence[DataFile], decoder: Decoder) -> list[pa.Table]:
        """Return the pairs of rows that fulfil the join condition."""
        if not self.incoming:
            return []
        limits = replace(self.limits, threads=granted_cores())
        compiled = self.conditions.pairs()
        target, calculator = self.conditions.spec.target, compiled.calculator
        rows = _Rows(
            self._read(files, calculator.columns_of(target), limits, decoder),
            lambda batch: calculator.values_of(target, batch),
            files=len(files),
        )
        with closing(rows):
            found = self._joined(rows, compiled, limits)
        rows.check_counts(files)
        return found

    def _joined(self, rows: _Rows, compiled: PairConditions, limits: TaskLimits) -> list[pa.Table]:
        given = rows.reader()
        if given is None:
            return []
        with open_session(limits, without_optimizers=_WITHOUT) as session:
            self._load(session)
            session.register("given", given)
            try:
                joined = session.sql(self._query(compiled)).to_arrow_reader(_ROWS_A_BATCH)
                return [_decided(batch, compiled) for batch in joined]
            except (duckdb.Error, pa.ArrowException) as error:
                raise rows.failure or _failure(error) from error

    def _load(self, session: Any) -> None:
        """Take in the source."""
        for number, piece in enumerate(self.exchange.get(self.incoming)):
            session.register("piece", piece)
            verb = "INSERT INTO incoming" if number else "CREATE TEMP TABLE incoming AS"
            session.execute(f"{verb} SELECT * FROM piece")
            session.unregister("piece")

    def _query(self, compiled: PairConditions) -> str:
        spec = self.conditions.spec
        own = [f"given.{name}" for name in compiled.references(spec.target)]
        other = [f"incoming.{name}" for name in compiled.references(spec.source)]
        pair = ("given.number", "given.position", "given.row_id", f"incoming.{NUMBER} AS source")
        columns = ", ".join([*pair, *own, *other])
        return f"SELECT {columns} FROM given JOIN incoming ON {compiled.on}"

    def _alone(
        self, files: Sequence[DataFile], matched: pa.Table, decoder: Decoder
    ) -> list[pa.Table]:
        """Return the rows that match no row of the source, and that a clause changes."""
        calculator, decisions = self.conditions.alone("not_matched_by_source")
        target = self.conditions.spec.target
        places, positions = matched["file"].to_numpy(), matched["position"].to_numpy()
        known = PlaceSet([positions[places == number] for number in range(len(files))])
        limits = replace(self.limits, threads=granted_cores())
        rows = _Rows(
            self._read(files, calculator.columns_of(target), limits, decoder),
            lambda batch: calculator.values_of(target, batch),
            files=len(files),
        )
        with closing(rows):
            found = [self._decided_alone(batch, known, calculator, decisions) for batch in rows]
        rows.check_counts(files)
        return found

    @staticmethod
    def _decided_alone(
        batch: pa.RecordBatch,
        known: PlaceSet,
        calculator: TwoTableCalculator,
        decisions: Decisions,
    ) -> pa.Table:
        numbers, positions = (batch.column(n).to_numpy() for n in ("number", "position"))
        left = batch.filter(pa.array(~known.holds(numbers, positions)))
        values = {name: left.column(name) for name in calculator.names}
        clauses = decisions.of(values, rows=left.num_rows)
        sources = np.full(left.num_rows, NO_SOURCE, np.int64)
        return _found(left, sources, clauses).filter(pa.array(clauses >= 0))

    def _read(
        self,
        files: Sequence[DataFile],
        columns: tuple[str, ...],
        limits: TaskLimits,
        decoder: Decoder,
    ) -> Generator[pa.RecordBatch, None, None]:
        # Rows are counted by one column at least.
        chosen = columns or tuple(self.conditions.target.names[:1])
        wanted = PlacedColumns(
            columns=chosen, row_identity=self.worker.tracks_rows, in_own_types=True
        )
        yield from self.worker.read_placed(files, wanted, limits=limits, decoder=decoder)


def _changes_alone(spec: MergeSpec) -> bool:
    return any(True for _ in spec.of_kind("not_matched_by_source"))


class _Rows:
    """Rows of files with what conditions read of them, counted by file.

    Keeps an error, which DuckDB would wrap.
    """

    def __init__(
        self,
        batches: Generator[pa.RecordBatch, None, None],
        values_of: Callable[[pa.RecordBatch], Mapping[str, pa.Array]],
        *,
        files: int,
    ) -> None:
        self._batches = batches
        self._values_of = values_of
        self._seen: Numbers = np.zeros(files, np.int64)
        #: DuckDB does not read on where nothing can match.
        self._is_read = False
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                numbers = batch.column(FILE_NUMBER)
                self._seen += np.bincount(numbers.to_numpy(), minlength=len(self._seen))
                row_ids = (
                    batch.column(ROW_ID)
                    if ROW_ID in batch.schema.names
                    else pa.nulls(batch.num_rows, pa.int64())
                )
                columns = {
                    "number": numbers,
                    "position": batch.column(POSITION),
                    "row_id": row_ids,
                    **self._values_of(batch),
                }
                yield pa.RecordBatch.from_pydict(columns)
            self._is_read = True
        except BaseException as error:
            self.failure = error
            raise

    def reader(self) -> pa.RecordBatchReader | None:
        """Return the rows as a stream; None if there are none."""
        batches = iter(self)
        first = next(batches, None)
        if first is None:
            return None
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))

    def close(self) -> None:
        """Give up what was not read."""
        self._batches.close()

    def check_counts(self, files: Sequence[DataFile]) -> None:
        """Raise CorruptFileError if a file that was read has other rows than the table says."""
        for file, rows in zip(files, self._seen.tolist(), strict=True) if self._is_read else ():
            check_count(file, rows)


def _failure(error: Exception) -> PredicateError:
    reason = str(error).partition("\n")[0]
    return PredicateError(
        f"the join condition cannot be evaluated: {reason}", hint="nothing was written"
    )


def _decided(joined: pa.RecordBatch, compiled: PairConditions) -> pa.Table:
    names = [name for name in joined.schema.names if name in set(compiled.calculator.names)]
    values = {name: joined.column(name) for name in names}
    clauses = compiled.decisions.of(values, rows=joined.num_rows)
    return _found(joined, joined.column("source"), clauses)


def _found(rows: pa.RecordBatch, sources: Any, clauses: npt.NDArray[np.int16]) -> pa.Table:
    columns = [
        rows.column("number"),
        rows.column("position"),
        pa.array(sources),
        pa.array(clauses),
        rows.column("row_id"),
    ]
    return pa.Table.from_arrays(
        [column.cast(kind) for column, kind in zip(columns, _FOUND.types, strict=True)],
        schema=_FOUND,
    )


def _each_place_once(matched: pa.Table) -> pa.Table:
    """Let one pair of a row decide: the others would delete the same row again."""
    files, positions = matched["file"].to_numpy(), matched["position"].to_numpy()
    order = np.lexsort((positions, files))
    repeated = np.zeros(len(order), np.bool_)
    repeated[order[1:]] = (np.diff(files[order]) == 0) & (np.diff(positions[order]) == 0)
    clauses = matched[CLAUSE].to_numpy().copy()
    clauses[repeated] = -1
    return matched.set_column(matched.schema.get_field_index(CLAUSE), CLAUSE, pa.array(clauses))


class MergeMatching(RowSearch):
    """Finds what a merge changes in a version of the table. Files are not read twice for it."""

    #: Rows of the table that are replaced, by file and position: as the tasks found them.
    updates: pa.Table
    #: Which rows of the source match a row of the table.
    matched: npt.NDArray[np.bool_]
    #: Rows of the table that go and that nothing replaces.
    deleted: int

    def __init__(
        self,
        operation: RowOperation,
        conditions: MergeConditions,
        source: MergeSource,
        files: ChosenFiles,
    ) -> None:
        """`files` says which files may hold a row that the merge changes, or that matches."""
        super().__init__(operation, files)
        self._conditions = conditions
        self._source = source
        self._incoming = put_in_pieces(operation, source.compared(conditions.pairs()))

    def _task(self) -> MergeMatchTask:
        return MergeMatchTask(
            worker=self._operation.worker,
            exchange=self._operation.exchange,
            conditions=self._conditions,
            incoming=self._incoming,
            limits=self._operation.limits,
        )

    def file_of(self, number: int) -> DataFile:
        """Return a file by its number in `updates`."""
        return self._once.files[number]

    def _resolve(self, found: Sequence[pa.Table]) -> Chosen:
        rows = pa.concat_tables(found) if found else _FOUND.empty_table()
        clauses, sources = rows[CLAUSE].to_numpy(), rows[NUMBER].to_numpy()
        self.matched = np.zeros(self._source.rows, np.bool_)
        self.matched[sources[sources != NO_SOURCE]] = True
        goes = clauses >= 0
        self._require_one_match(rows.filter(pa.array(goes)))
        actions = [clause.action for clause in self._conditions.spec.clauses]
        is_update = np.array([*(action == "update" for action in actions), False], np.bool_)
        replaced = is_update[clauses]
        order = [("file", "ascending"), ("position", "ascending")]
        self.updates = rows.filter(pa.array(replaced)).sort_by(order)
        self.deleted = int(goes.sum() - replaced.sum())
        return Chosen(replaced=replaced, goes=goes)

    def _require_one_match(self, acting: pa.Table) -> None:
        """Raise MultipleMatchesError if several rows of the source would change one row."""
        files, positions = acting["file"].to_numpy(), acting["position"].to_numpy()
        order = np.lexsort((acting[NUMBER].to_numpy(), positions, files))
        same = (np.diff(files[order]) == 0) & (np.diff(positions[order]) == 0)
        if not same.any():
            return
        rows = int(np.sum(np.diff(np.concatenate([[0], same.astype(np.int8)])) == 1))
        first = int(np.flatnonzero(same)[0])
        pair = acting[NUMBER].to_numpy()[order[first : first + 2]]
        shown = self._source.shown(pair, self._conditions.pairs())
        raise MultipleMatchesError(
            f"several rows of the source match the same row of {self._operation.table.store.url},"
            f" and would change it, at {rows:,} of its rows; for example {shown}",
            rows=rows,
            hint="nothing was written; make the join condition or the conditions of WHEN MATCHED"
            " hold for one row of the source at most, for example by removing duplicates",
        )
