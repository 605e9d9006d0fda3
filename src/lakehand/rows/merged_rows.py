"""The rows that a merge writes: updated ones, file by file, and then inserted ones."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import PredicateError
from lakehand.expressions.computed import column_at
from lakehand.expressions.engine_types import spark_type
from lakehand.expressions.two_tables import TwoTableCalculator
from lakehand.rows.incoming import NUMBER
from lakehand.rows.inserts import Piece
from lakehand.rows.merge_matching import CLAUSE, NO_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from lakehand.formats.rows import RowChangeWorker
    from lakehand.rows.merge_clauses import Columns, MergeClause, MergeSpec
    from lakehand.rows.merge_conditions import Clauses, MergeConditions
    from lakehand.rows.merge_matching import MergeMatching
    from lakehand.rows.merge_source import MergeSource

#: Instead of the number of a clause: conditions were not evaluated for the row.
_NOT_ASKED = -2


class Assignments:
    """Makes the rows of one clause of its expressions."""

    def __init__(
        self,
        clause: MergeClause,
        spec: MergeSpec,
        columns: Columns,
        *,
        schemas: Mapping[str, pa.Schema],
        now: datetime,
    ) -> None:
        """`schemas` are those of the target and of the source, by their aliases."""
        self._target = schemas[spec.target]
        self._schemas = seen = _seen_by(clause, spec, schemas)
        self._calculator = TwoTableCalculator(seen, now=now)
        #: Finds columns that are copied, which need not be such that DuckDB takes them.
        self._names = TwoTableCalculator(seen, now=now)
        #: Columns that are copied unchanged, by the path of the column they come from.
        self._taken: dict[str, tuple[str, ...]] = {}
        #: SQL of columns that are computed.
        self._computed: dict[str, str] = {}
        for name, text in columns.assigned_by(clause, spec).items():
            self._assign(name, text, f"the value of {name!r} in {clause.text}")
        if clause.action == "update":
            kept = set(self._target.names) - {*self._taken, *self._computed, *columns.generated}
            self._taken |= {name: (spec.target, name) for name in kept}

    def _assign(self, name: str, text: str, what: str) -> None:
        type_ = self._target.field(name).type
        path = self._names.plain_column(text)
        if path is not None:
            own = _type_at(self._schemas, path)
            # Nested and other types are not evaluated: rows that are written are made to fit.
            if own == type_ or pa.types.is_nested(own):
                self._taken[name] = path
                return
        self._computed[name] = self._calculator.value(text, spark_type(type_), what=what).sql

    def of(self, rows: Mapping[str, pa.RecordBatch], *, count: int) -> pa.RecordBatch:
        """Return `count` new rows, without columns that the table itself computes."""
        columns: dict[str, pa.Array] = {}
        for name, (alias, *path) in self._taken.items():
            columns[name] = column_at(rows[alias], tuple(path))
        if self._computed:
            values = {
                name: found
                for alias, batch in rows.items()
                for name, found in self._calculator.values_of(alias, batch).items()
            }
            answers = self._calculator.compute_values(self._computed.values(), values, rows=count)
            for name, answer in zip(self._computed, answers, strict=True):
                columns[name] = _as_column(answer, self._target.field(name))
        ordered = [name for name in self._target.names if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in ordered], names=ordered)


def _type_at(schemas: Mapping[str, pa.Schema], path: tuple[str, ...]) -> pa.DataType:
    """Return the type that a column, or a field in one, has in the rows."""
    alias, column, *rest = path
    kind = schemas[alias].field(column).type
    for name in rest:
        kind = kind.field(name).type
    return kind


def _as_column(values: pa.Array, column: pa.Field) -> pa.Array:
    try:
        return values.cast(column.type)
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        message = f"a value of column {column.name!r} does not fit type {column.type}: {reason}"
        raise PredicateError(message, field=column.name, hint="nothing was written") from error


def _seen_by(
    clause: MergeClause, spec: MergeSpec, schemas: Mapping[str, pa.Schema]
) -> Mapping[str, pa.Schema]:
    """Return the tables that the expressions of a clause may read."""
    hidden = {"not_matched": spec.target, "not_matched_by_source": spec.source}.get(clause.kind)
    return {alias: schema for alias, schema in schemas.items() if alias != hidden}


class MergedRows:
    """The rows of a merge, given what it changes in the version that was searched last."""

    def __init__(
        self,
        matching: MergeMatching,
        source: MergeSource,
        assignments: Mapping[int, Assignments],
        *,
        conditions: MergeConditions,
        worker: RowChangeWorker,
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        """Take `assignments` by the number of the clause; `fit` makes rows fit the table."""
        self._matching = matching
        self._source = source
        self._assignments = assignments
        self._spec = conditions.spec
        self._worker = worker
        self._fit = fit
        self._calculator, self._decisions = conditions.alone("not_matched")
        #: The clause that inserts each row of the source, if it was asked for; -1: none.
        self._inserting: Clauses = np.full(source.rows, _NOT_ASKED, np.int16)

    @property
    def count(self) -> int:
        """How many rows are written."""
        return self.replacing + self.inserted

    @property
    def replacing(self) -> int:
        """How many of them replace others."""
        rows: int = self._matching.updates.num_rows
        return rows

    @property
    def inserted(self) -> int:
        """How many of them are new."""
        return int((self._insertions() >= 0).sum())

    def _insertions(self) -> Clauses:
        """Return the clause that inserts each row of the source; -1: none.

        Conditions are evaluated for rows that match nothing: they may fail on others.
        """
        matched = self._matching.matched
        for start, batch in self._source.batches() if self._decisions else ():
            part = slice(start, start + batch.num_rows)
            here = np.flatnonzero((self._inserting[part] == _NOT_ASKED) & ~matched[part])
            if len(here):
                seen = self._calculator.values_of(self._source.name, batch)
                values = {name: column.take(pa.array(here)) for name, column in seen.items()}
                self._inserting[start + here] = self._decisions.of(values, rows=len(here))
        return np.where(matched, np.int16(-1), self._inserting)

    def signature(self, *, with_matches: bool) -> bytes:  # noqa: ARG002  rows depend on them
        """Return which rows change, and by which clause and row of the source."""
        found = hashlib.sha256(self._insertions().tobytes())
        for column in self._matching.updates.columns:
            found.update(column.fill_null(-1).to_numpy().tobytes())
        return found.digest()

    def pieces(self) -> Iterator[Piece]:
        """Yield updated rows in the order of their files, then inserted ones in their own."""
        updates = self._matching.updates
        files = updates["file"].to_numpy()
        starts = np.flatnonzero(np.diff(files, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(files)]):
            yield from self._updated(int(files[start]), updates.slice(start, end - start))
        insertions = self._insertions()
        for start, batch in self._source.batches():
            yield from self._inserted(batch, insertions[start : start + batch.num_rows])

    def _updated(self, file: int, updates: pa.Table) -> Iterator[Piece]:
        """Yield the new values of rows of one file, which is read in its order."""
        positions = updates["position"].to_numpy()
        only = self._worker.only_rows(self._matching.file_of(file), positions)
        start = 0
        for batch in self._worker.read([only]):
            chosen = updates.slice(start, batch.num_rows)
            start += batch.num_rows
            yield from self._replaced(batch, chosen)
        if start != len(positions):
            path = self._matching.file_of(file).path
            raise RuntimeError(f"{path} gave {start} rows where {len(positions)} were asked for")

    def _replaced(self, batch: pa.RecordBatch, updates: pa.Table) -> Iterator[Piece]:
        clauses, sources = updates[CLAUSE].to_numpy(), updates[NUMBER].to_numpy()
        row_ids = updates["row_id"].combine_chunks()
        for number in np.unique(clauses).tolist():
            here = np.flatnonzero(clauses == number)
            rows = {self._spec.target: batch.take(pa.array(here))}
            if sources[here[0]] != NO_SOURCE:
                rows[self._spec.source] = self._source.take(sources[here])
            made = self._assignments[number].of(rows, count=len(here))
            yield Piece(
                rows=self._fit(made),
                replacing=np.ones(len(here), np.bool_),
                row_ids=row_ids.take(pa.array(here)),
            )

    def _inserted(self, batch: pa.RecordBatch, clauses: Clauses) -> Iterator[Piece]:
        for number in np.unique(clauses[clauses >= 0]).tolist():
            here = np.flatnonzero(clauses == number)
            rows = {self._spec.source: batch.take(pa.array(here))}
            made = self._assignments[number].of(rows, count=len(here))
            yield Piece(
                rows=self._fit(made),
                replacing=np.zeros(len(here), np.bool_),
                row_ids=pa.nulls(len(here), pa.int64()),
            )
