"""An order-independent fingerprint of a set of rows.

It consists of the number of rows and the sums of two 64-bit hashes of each row. Sums, not XORs: XOR
would not detect that a pair of equal rows was replaced by another pair. Collision probability:
about 2^-64 by accident; no protection against deliberate collisions.

The hashes are SQL that is generated from the schema. DuckDB's `hash` alone does not distinguish a
null list from an empty one, a struct of nulls from a null struct, and -0.0 from 0.0. The arguments
generated here distinguish any two values of a type, with one exception: the payload of a NaN (its
sign is distinguished).
"""

from __future__ import annotations

from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakehand.duckdb_pool import connect, is_taken_sliced, unsliced
from lakehand.errors import EngineError, SchemaMismatchError
from lakehand.expressions.literals import quote_identifier
from lakehand.model.batches import Gathering
from lakehand.model.work import Digest
from lakehand.prove.deep_lists import hashable_schema, is_deep, shallow_rows, takes_lambda

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

# Hashes of rows, as SQL

#: Name of the algorithm. Any change of the expressions is another algorithm.
ALGORITHM = "lakehand-digest-1"
#: DuckDB does not guarantee stable hashes across versions, so its version is part of every digest.
ENGINE = f"duckdb-{duckdb.__version__}"
#: Columns that `query_with_lanes` adds: the two hashes of each row.
LANES = ("__lakehand_lane_1", "__lakehand_lane_2")


def digest_query(query: str, schema: pa.Schema) -> str:
    """Return SQL for the row count of `query` and the sums of the row hashes."""
    first, second = lane_expressions(schema)
    return f"SELECT count(*), sum({first}), sum({second}) FROM {_positional(query, schema)}"


def query_with_lanes(
    query: str, schema: pa.Schema, *, numbered: Mapping[int, str] | None = None
) -> str:
    """Return SQL for the rows of `query` with their hashes: cheaper than hashing them later.

    Columns in `numbered`, each with a variable that lists values, are replaced by the index of
    their value there; values that are not listed follow in columns at the end.
    """
    quoted = [quote_identifier(name) for name in schema.names]
    values, others = _names(schema), []
    for position, variable in (numbered or {}).items():
        number = f"list_position(getvariable('{variable}'), {values[position]})"
        others.append(f"CASE WHEN {number} IS NULL THEN {values[position]} END AS other_{position}")
        values[position] = f"CAST({number} - 1 AS UTINYINT)"
    columns = [f"{value} AS {alias}" for value, alias in zip(values, quoted, strict=True)]
    lanes = zip(lane_expressions(schema), LANES, strict=True)
    columns += [*others, *(f"{expression} AS {name}" for expression, name in lanes)]
    return f"SELECT {', '.join(columns)} FROM {_positional(query, schema)}"


def placed_lanes_query(query: str, schema: pa.Schema) -> str:
    """Return SQL for the row hashes of `query`, which has `schema` and two more columns.

    These two, which identify the location of a row, are passed through.
    """
    first, second = lane_expressions(schema)
    named = f"({query}) AS hashed({', '.join([*_names(schema), 'number', 'position'])})"
    return f"SELECT {first}, {second}, number, position FROM {named}"


def _names(schema: pa.Schema) -> list[str]:
    """Return c0, c1, ...: names that cannot collide with the table's."""
    return [f"c{position}" for position in range(len(schema))]


def _positional(query: str, schema: pa.Schema) -> str:
    return f"({query}) AS hashed({', '.join(_names(schema))})"


def lane_expressions(schema: pa.Schema) -> tuple[str, str]:
    """Return two SQL expressions, each a hash of a row with columns named c0, c1, ..."""
    columns = zip(_names(schema), schema.types, strict=True)
    arguments = [argument for name, kind in columns for argument in _arguments(name, kind, 0)]
    forward = ", ".join(arguments)
    backward = ", ".join(reversed(arguments))
    # The outer hash mixes again, because the inner one is almost linear in its last argument. The
    # second lane has the reverse order, so that a weak combination in one lane is not weak in the
    # other.
    return f"hash(hash({forward}))", f"hash(hash({backward}), 42)"


def _arguments(value: str, kind: pa.DataType, depth: int) -> list[str]:
    """Return expressions that together distinguish any two values of type `kind`."""
    if pat.is_floating(kind):
        return [value, f"signbit({value})"]
    if pat.is_struct(kind):
        return [f"{value} IS NULL", *_member_arguments(value, kind, depth)]
    if pat.is_map(kind):
        keys = _list_arguments(f"map_keys({value})", kind.key_type, depth)
        return [*keys, *_list_arguments(f"map_values({value})", kind.item_type, depth)]
    if pat.is_list(kind) or pat.is_large_list(kind):
        return _list_arguments(value, kind.value_type, depth)
    return [value]


def _member_arguments(value: str, kind: pa.StructType, depth: int) -> list[str]:
    members: list[str] = []
    for position in range(kind.num_fields):
        member = f"struct_extract_at({value}, {position + 1})"
        members += _arguments(member, kind.field(position).type, depth)
    return members


def _list_arguments(value: str, element: pa.DataType, depth: int) -> list[str]:
    length = f"coalesce(len({value}), -1)"
    if not takes_lambda(element):
        return [length, value]
    variable = f"x{depth}"
    hashed = _element_hash(variable, element, depth + 1)
    return [length, f"list_transform({value}, lambda {variable}: {hashed})"]


def _element_hash(value: str, kind: pa.DataType, depth: int) -> str:
    return f"hash({', '.join(_arguments(value, kind, depth))})"


def hashable(rows: pa.Table) -> pa.Table:
    """Return `rows` as DuckDB takes and hashes them; their schema is `hashable_schema`."""
    if is_deep(rows.schema):
        with connect(threads=1) as connection:
            rows = shallow_rows(rows, partial(_hash_elements, connection))
    return unsliced(rows)


def _hash_elements(connection: duckdb.DuckDBPyConnection, values: pa.Array) -> pa.Array:
    connection.register("given", unsliced(pa.table({"x": values})))
    query = f"SELECT {_element_hash('x', values.type, 0)} AS hash FROM given"
    hashes = connection.sql(query).to_arrow_table()["hash"]
    connection.unregister("given")
    return hashes.combine_chunks()


# Values of one type that a naive hash confuses.
_EASILY_CONFUSED: tuple[tuple[pa.DataType, tuple[object, ...]], ...] = (
    (pa.float64(), (0.0, -0.0, None, float("nan"))),
    (pa.string(), (None, "", "a", "\x00")),
    (pa.list_(pa.int32()), (None, [], [None], [None, 1], [1, None])),
    (pa.list_(pa.list_(pa.int32())), (None, [], [[]], [None], [[1], [2]], [[1, 2]], [[1, 2], []])),
    (pa.list_(pa.float32()), (None, [], [None], [0.0], [-0.0])),
    (pa.struct({"a": pa.int32()}), (None, {"a": None}, {"a": 0})),
    (pa.list_(pa.struct({"a": pa.int32()})), (None, [], [None], [{"a": None}])),
    (pa.map_(pa.string(), pa.int32()), (None, [], [("a", None)], [("a", 0)])),
)

# The sums of both lanes over the values above, by engine.
_KNOWN_ANSWERS = {"duckdb-2.0.0": (17893046613400963532, 1557476409943449131)}


@cache
def check_engine() -> None:
    """Reject an engine that confuses different values, or whose hashes have changed."""
    sums = [0, 0]
    with connect(threads=1) as connection:
        for kind, values in _EASILY_CONFUSED:
            for lane, hashes in enumerate(_hash_values(connection, kind, values)):
                if len(set(hashes)) < len(values):
                    raise EngineError(f"{ENGINE} hashes different values of {kind} alike")
                sums[lane] += sum(hashes)
    answer = (sums[0] % 2**64, sums[1] % 2**64)
    if _KNOWN_ANSWERS.get(ENGINE, answer) != answer:
        raise EngineError(f"{ENGINE} hashes differently than {ENGINE} did: {answer}")


def _hash_values(
    connection: duckdb.DuckDBPyConnection, kind: pa.DataType, values: tuple[object, ...]
) -> tuple[list[int], list[int]]:
    table = pa.table({"value": pa.array(values, kind)})
    connection.register("given", table)
    query = query_with_lanes("SELECT * FROM given", table.schema)
    rows = connection.execute(query).fetchall()
    return [row[1] for row in rows], [row[2] for row in rows]


# Digests of sets of rows

#: Rows hashed per query; smaller batches are collected.
_ROWS_PER_QUERY = 128 * 1024
_LANE_MODULUS = 2**64


class Digester:
    """Computes the digest of batches of one schema as they stream through."""

    def __init__(self, schema: pa.Schema, *, threads: int = 1) -> None:
        check_engine()
        self._schema = schema
        self._query = digest_query("SELECT * FROM batch", hashable_schema(schema))
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
        """Count the rows of `batch`; its schema must be the digester's, except for names."""
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
        """Add rows with hashes (`query_with_lanes`); return them without hashes."""
        # By position: a table may have columns with any name.
        width = batch.num_columns - len(LANES)
        self.add_lanes([batch.column(width + lane).to_numpy() for lane in range(len(LANES))])
        return batch.select(list(range(width)))

    def add_lanes(self, lanes: Sequence[npt.NDArray[np.uint64]]) -> None:
        """Add rows by their hashes, one array per lane."""
        first, second = (int(np.sum(lane, dtype=np.uint64)) for lane in lanes)
        self.add_sums(len(lanes[0]), first, second)

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
        self._hash(connection, hashable(table))

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
                schema = batch.schema
                is_taken = is_taken_sliced(schema) and not is_deep(schema)
            _require_equal(batch.schema, schema)
            if is_taken:
                yield batch
            else:
                yield from hashable(pa.Table.from_batches([batch])).to_batches()
    except BaseException as failure:
        failures.append(failure)
        raise


def _require_equal(schema: pa.Schema, expected: pa.Schema) -> None:
    # DuckDB does not check it, and would interpret memory with the wrong type.
    if schema != expected:
        raise TypeError(f"the schema of rows changed from {expected} to {schema}")


class SplitDigester(Digester):
    """Digests the rows of one file, and some of them a second time."""

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

    def add_lanes(self, lanes: Sequence[npt.NDArray[np.uint64]]) -> None:
        positions = self._positions(len(lanes[0]))
        self.part.add_lanes([lane[positions] for lane in lanes])
        super().add_lanes(lanes)

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
