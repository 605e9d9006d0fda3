"""Changelogs: many changes of a key become the one that counts. No I/O.

Two forms are known. In the log of a database (CDC) a column `_op` says what happened to a row, and
of several changes of a key the last one counts. In a weighted set (Z-set) a column `__weight` says
how often a row came, or went if it is negative: equal rows are added up, and of each key at most
one row may be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import DuplicateKeyError, ValidationError
from lakehand.model.quantities import format_count
from lakehand.rows.incoming import LIVE, NUMBER
from lakehand.rows.sameness import key_value
from lakehand.sink.rows import without_views

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import duckdb

    from lakehand.rows.incoming import KeyColumns

__all__ = [
    "BOOKKEEPING",
    "SIGN",
    "Changes",
    "Form",
    "collapse",
    "read_changes",
]

#: Columns that say what happened, and are no part of a row.
OPERATION, TIME, WEIGHT = BOOKKEEPING = ("_op", "_ts_ms", "__weight")
#: What they come to, in one column: how often a row comes, or goes if it is negative.
SIGN = "__lakehand_sign"

#: Operations by which a row goes: it is deleted, or it is what an update found. Case is no matter.
_GOING = ("D", "U-")
_SHOWN_KEYS = 3


class Form(StrEnum):
    """What the order and the number of changes mean."""

    #: Rows that are to be in the table, in no order: a key has one at most.
    ROWS = "rows"
    #: The last change of a key counts.
    CDC = "cdc"
    #: Weights of equal rows are added up.
    ZSET = "zset"


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """Rows without bookkeeping, and what happened to each of them."""

    rows: pa.RecordBatch
    #: As SIGN.
    signs: pa.Array
    form: Form


def read_changes(batch: pa.RecordBatch, *, columns: Collection[str] = ()) -> Changes:
    """Tell the rows of a batch from what it says happened to them.

    A batch that says nothing holds rows that are to be in the table. `columns` of the table are of
    its rows, whatever they are called.
    """
    names = batch.schema.names
    if OPERATION in names and WEIGHT in names:
        message = f"rows have both {OPERATION} and {WEIGHT}: a changelog has one of them"
        raise ValidationError(message, field=WEIGHT)
    rows = without_views(
        batch.select([name for name in names if name in columns or name not in BOOKKEEPING])
    )
    if WEIGHT in names:
        return Changes(rows=rows, signs=_weights(batch.column(WEIGHT)), form=Form.ZSET)
    if OPERATION in names:
        return Changes(rows=rows, signs=_signs(batch.column(OPERATION)), form=Form.CDC)
    ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    return Changes(rows=rows, signs=ones, form=Form.ROWS)


def _signs(operations: pa.Array) -> pa.Array:
    if isinstance(operations.type, pa.DictionaryType):
        operations = operations.cast(operations.type.value_type)
    if not (pat.is_string(operations.type) or pat.is_large_string(operations.type)):
        message = f"{OPERATION} holds words such as I, U and D, and not {operations.type}"
        raise ValidationError(message, field=OPERATION, value=str(operations.type))
    words = pc.utf8_upper(operations)
    goes = pc.fill_null(pc.is_in(words, value_set=pa.array(_GOING, words.type)), False)  # noqa: FBT003
    return pc.if_else(goes, pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))


def _weights(weights: pa.Array) -> pa.Array:
    if not pat.is_integer(weights.type) or weights.null_count:
        message = f"{WEIGHT} says of each row how often it comes or goes: a whole number, no null"
        raise ValidationError(message, field=WEIGHT, value=str(weights.type))
    return weights.cast(pa.int64())


def collapse(
    session: duckdb.DuckDBPyConnection, changes: pa.Table, key: KeyColumns, *, form: Form
) -> pa.Table:
    """Return what is to become of each key: `k0`, `k1`, ..., NUMBER and LIVE, by NUMBER.

    `changes` has the columns of the table, whatever they are called, then SIGN, and NUMBER in the
    order in which they came. DuplicateKeyError if more than one row of a key is to stay.
    """
    given = _Given.of(changes.schema, key)
    session.register("changes", changes.rename_columns(given.names))
    query = _QUERIES[form](given)
    session.execute(f"CREATE OR REPLACE TEMP TABLE collapsed AS {query}")
    session.unregister("changes")
    _require_one_row_a_key(session, key)
    columns = ", ".join(key.keys("k"))
    counted = f"SELECT {columns}, {NUMBER}, {LIVE} FROM collapsed WHERE {NUMBER} IS NOT NULL"
    found = session.sql(f"{counted} ORDER BY {NUMBER}").to_arrow_table()
    # DuckDB has no way to say that a text or a time is of this very type.
    kinds = [pa.field(n, c.type) for n, c in zip(key.keys("k"), key.schema, strict=True)]
    return found.cast(pa.schema([*kinds, (NUMBER, pa.int64()), (LIVE, pa.bool_())]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Given:
    """Changes in SQL: columns by their place, so that no name of a table is in the way."""

    #: Of all columns.
    names: list[str]
    #: Of the table's columns, equal ones spelled equal, and of the key among them.
    values: list[str]
    keys: list[str]
    sign: str
    number: str

    @classmethod
    def of(cls, schema: pa.Schema, key: KeyColumns) -> _Given:
        *own, sign, number = [f"c{n}" for n in range(len(schema))]
        spelled = [key_value(n, t) for n, t in zip(own, schema.types[:-2], strict=True)]
        places = {name: place for place, name in enumerate(schema.names[:-2])}
        return cls(
            names=[*own, sign, number],
            values=spelled,
            keys=[spelled[places[name]] for name in key.names],
            sign=sign,
            number=number,
        )


def _last_change(given: _Given) -> str:
    return (
        f"SELECT {_spelled(given.keys)}, max({given.number}) AS {NUMBER},"
        f" arg_max({given.sign}, {given.number}) > 0 AS {LIVE}, 1 AS candidates"
        f" FROM changes GROUP BY {', '.join(given.keys)}"
    )


def _every_row(given: _Given) -> str:
    return (
        f"SELECT {_spelled(given.keys)}, max({given.number}) AS {NUMBER}, true AS {LIVE},"
        f" count(*) AS candidates FROM changes GROUP BY {', '.join(given.keys)}"
    )


def _sum_of_weights(given: _Given) -> str:
    number, sign = given.number, given.sign
    sums = (
        f"SELECT {_spelled(given.keys)}, sum({sign}) AS weight,"
        f" max({number}) FILTER ({sign} > 0) AS coming, max({number}) AS changed"
        f" FROM changes GROUP BY {', '.join(given.values)} HAVING sum({sign}) <> 0"
    )
    grouped = ", ".join(f"k{n}" for n in range(len(given.keys)))
    return (
        f"SELECT {grouped}, coalesce(max(coming) FILTER (weight > 0), max(changed)) AS {NUMBER},"
        f" count(*) FILTER (weight > 0) > 0 AS {LIVE},"
        f" sum(weight) FILTER (weight > 0) AS candidates FROM ({sums}) GROUP BY {grouped}"
    )


_QUERIES = {Form.ROWS: _every_row, Form.CDC: _last_change, Form.ZSET: _sum_of_weights}


def _spelled(keys: Sequence[str]) -> str:
    return ", ".join(f"{value} AS k{n}" for n, value in enumerate(keys))


def _require_one_row_a_key(session: duckdb.DuckDBPyConnection, key: KeyColumns) -> None:
    [(count,)] = session.sql("SELECT count(*) FROM collapsed WHERE candidates > 1").fetchall()
    if not count:
        return
    columns = ", ".join(key.keys("k"))
    shown = session.sql(
        f"SELECT {columns} FROM collapsed WHERE candidates > 1 ORDER BY ALL LIMIT {_SHOWN_KEYS}"
    ).fetchall()
    words = "; ".join(
        ", ".join(f"{n} = {v!r}" for n, v in zip(key.names, row, strict=True)) for row in shown
    )
    if count > len(shown):
        words += ", and others"
    raise DuplicateKeyError(
        f"more than one row is to be in the table for {format_count(count, 'key')}: {words}",
        field="key",
        value=list(key.names),
        hint="nothing was written; give one row for each key, or more columns as the key",
    )
