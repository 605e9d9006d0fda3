"""An order-independent fingerprint of a set of rows.

It consists of the number of rows and the sums of two hashes of each row. Sums, not XORs: XOR would
not detect that a pair of equal rows was replaced by another pair. Collision probability: about
2^-64 by accident; no protection against deliberate collisions.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Self

import duckdb
import numpy as np
import pyarrow as pa

from lakehand.duckdb_pool import connect, is_taken_sliced, unsliced
from lakehand.errors import SchemaMismatchError
from lakehand.model.batches import Gathering
from lakehand.model.work import Digest
from lakehand.prove.row_hash import ALGORITHM, ENGINE, LANES, check_engine, digest_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

#: Rows hashed per query; smaller batches are collected.
_ROWS_PER_QUERY = 128 * 1024
_LANE_MODULUS = 2**64


class Digester:
    """Computes the digest of batches of one schema as they stream through."""

    def __init__(self, schema: pa.Schema, *, threads: int = 1) -> None:
        check_engine()
        self._schema = schema
        self._query = digest_query("SELECT * FROM batch", schema)
        self._threads = threads
        #: None until rows must be hashed here: most come with their hashes.
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._waiting = Gathering[pa.RecordBatch](rows=_ROWS_PER_QUERY)
        self._rows = 0
        self._lanes = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of `batch`; its schema must be the digester's, names aside."""
        if self._waiting.add(batch):
            self._hash_waiting()

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add the rows of all `batches` while they stream through one query."""
        failures: list[BaseException] = []
        given = _kept(batches, failures)
        first = next(given, None)
        if first is None:
            return
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], given))
        try:
            # Batches arrive sequentially: more threads would only wait for each other.
            with connect(threads=1) as connection:
                self._hash(connection, reader)
        except duckdb.Error:
            if not failures:
                raise
        # DuckDB replaces an exception raised while it pulls batches by its own.
        if failures:
            raise failures[0]

    def add_hashed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add rows that come with hashes (`query_with_lanes`); return them without hashes."""
        # By position: a table may have columns with any name.
        width = batch.num_columns - len(LANES)
        lanes = (batch.column(width + lane).to_numpy() for lane in range(len(LANES)))
        first, second = (int(np.sum(lane, dtype=np.uint64)) for lane in lanes)
        self.add_sums(batch.num_rows, first, second)
        return batch.select(list(range(width)))

    def add_sums(self, rows: int, first: int, second: int) -> None:
        """Add sums that were computed elsewhere (`digest_query`)."""
        self._rows += rows
        self._lanes = _add(self._lanes, first, second)

    def result(self) -> Digest:
        """Return the digest of all rows so far."""
        self._hash_waiting()
        return Digest(rows=self._rows, lanes=self._lanes, algorithm=ALGORITHM, engine=ENGINE)

    def _hash_waiting(self) -> None:
        if not self._waiting.rows:
            return
        table = pa.Table.from_batches(self._waiting.take())
        connection = self._connection = self._connection or connect(threads=self._threads)
        self._hash(connection, unsliced(table))

    def _hash(
        self, connection: duckdb.DuckDBPyConnection, given: pa.Table | pa.RecordBatchReader
    ) -> None:
        connection.register("batch", given)
        try:
            [(rows, first, second)] = connection.execute(self._query).fetchall()
        except duckdb.BinderException as error:
            raise SchemaMismatchError(
                f"rows do not have the columns by which they are counted: {_first_line(error)}",
                hint="run `lakehand verify` on the table",
            ) from error
        finally:
            connection.unregister("batch")
        # The sums of no rows are null.
        self.add_sums(rows, int(first or 0), int(second or 0))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _kept(
    batches: Iterable[pa.RecordBatch], failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    """Yield batches for DuckDB, checked to have one schema, and keep the exception they raise."""
    schema: pa.Schema | None = None
    is_taken = False
    try:
        for batch in batches:
            if schema is None:
                schema, is_taken = batch.schema, is_taken_sliced(batch.schema)
            _require_equal(batch.schema, schema)
            if is_taken:
                yield batch
            else:
                yield from unsliced(pa.Table.from_batches([batch])).to_batches()
    except BaseException as failure:
        failures.append(failure)
        raise


def _require_equal(schema: pa.Schema, expected: pa.Schema) -> None:
    # DuckDB does not check it, and would interpret memory with the wrong type.
    if schema != expected:
        raise TypeError(f"the schema of rows changed from {expected} to {schema}")


class SplitDigester(Digester):
    """Digests the rows of one file in order, and some of them a second time."""

    def __init__(self, schema: pa.Schema, *, chosen: npt.NDArray[np.int64]) -> None:
        """`chosen` are the positions of the rows to digest twice, ascending; the first row is 0."""
        super().__init__(schema)
        #: The chosen rows.
        self.part = Digester(schema)
        self._chosen = chosen
        self._seen = 0

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.part.__exit__(*error)

    def add(self, batch: pa.RecordBatch) -> None:
        positions = self._positions(batch.num_rows)
        if len(positions):
            self.part.add(batch.take(pa.array(positions)))
        super().add(batch)

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.add(batch)

    def add_hashed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        positions = self._positions(batch.num_rows)
        if len(positions):
            self.part.add_hashed(batch.take(pa.array(positions)))
        return super().add_hashed(batch)

    def _positions(self, rows: int) -> npt.NDArray[np.int64]:
        start, self._seen = self._seen, self._seen + rows
        first, last = np.searchsorted(self._chosen, (start, self._seen))
        return self._chosen[first:last] - start


def _add(lanes: tuple[int, int], first: int, second: int) -> tuple[int, int]:
    return (lanes[0] + first) % _LANE_MODULUS, (lanes[1] + second) % _LANE_MODULUS


def digest(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, threads: int = 1) -> Digest:
    """Return the digest of all rows in `batches`."""
    with Digester(schema, threads=threads) as digester:
        digester.add_all(batches)
        return digester.result()
