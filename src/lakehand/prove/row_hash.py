"""Two 64-bit hashes of a row, as SQL generated from the schema.

DuckDB's `hash` alone does not distinguish a null list from an empty one, a struct of nulls from a
null struct, and -0.0 from 0.0. The arguments generated here distinguish any two values of a type,
with one exception: the payload of a NaN (its sign is distinguished).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.types as pat

from lakehand.duckdb_pool import connect
from lakehand.errors import EngineError
from lakehand.expressions.literals import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    if not (pat.is_nested(element) or pat.is_floating(element)):
        return [length, value]
    variable = f"x{depth}"
    inner = ", ".join(_arguments(variable, element, depth + 1))
    return [length, f"list_transform({value}, lambda {variable}: hash({inner}))"]


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
