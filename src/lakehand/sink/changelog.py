"""Changelogs: many changes of a key become the one that counts, in the table's columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand import errors
from lakehand.formats.base import require_support
from lakehand.formats.optional import SupportsRowChanges
from lakehand.model.quantities import format_count
from lakehand.rows.incoming import LIVE, NUMBER, KeyColumns
from lakehand.rows.key_equality import key_value, named_key
from lakehand.schema.arrow_input import without_views
from lakehand.schema.conform import Conformer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import duckdb

    from lakehand.sink.target import Target

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
        raise errors.ValidationError(message, field=WEIGHT)
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
        raise errors.ValidationError(message, field=OPERATION, value=str(operations.type))
    words = pc.utf8_upper(operations)
    goes = pc.fill_null(pc.is_in(words, value_set=pa.array(_GOING, words.type)), False)  # noqa: FBT003
    return pc.if_else(goes, pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))


def _weights(weights: pa.Array) -> pa.Array:
    if not pat.is_integer(weights.type) or weights.null_count:
        message = f"{WEIGHT} says of each row how often it comes or goes: a whole number, no null"
        raise errors.ValidationError(message, field=WEIGHT, value=str(weights.type))
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
    # DuckDB returns other types of strings and timestamps than it was given.
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


#: As DuckDB names the type.
_INSTANT = "TIMESTAMP WITH TIME ZONE"


def _require_one_row_a_key(session: duckdb.DuckDBPyConnection, key: KeyColumns) -> None:
    [(count,)] = session.sql("SELECT count(*) FROM collapsed WHERE candidates > 1").fetchall()
    if not count:
        return
    columns = ", ".join(key.keys("k"))
    some = session.sql(
        f"SELECT {columns} FROM collapsed WHERE candidates > 1 ORDER BY ALL LIMIT {_SHOWN_KEYS}"
    )
    # As text: to make a Python value of an instant DuckDB needs pytz, which may not be installed.
    instants = [number for number, kind in enumerate(some.types, 1) if str(kind) == _INSTANT]
    shown = some.project(
        ", ".join(
            f"#{number}::VARCHAR" if number in instants else f"#{number}"
            for number in range(1, len(some.types) + 1)
        )
    ).fetchall()
    words = "; ".join(
        ", ".join(f"{n} = {v!r}" for n, v in zip(key.names, row, strict=True)) for row in shown
    )
    if count > len(shown):
        words += ", and others"
    raise errors.DuplicateKeyError(
        f"more than one row is to be in the table for {format_count(count, 'key')}: {words}",
        field="key",
        value=list(key.names),
        hint="nothing was written; give one row for each key, or more columns as the key",
    )


#: Bookkeeping that decides what becomes of a row.
_DECIDING = (BOOKKEEPING[0], BOOKKEEPING[2])


def row_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows, without those that say what happened to them."""
    return pa.schema([column for column in schema if column.name not in BOOKKEEPING])


class ChangeRows:
    """Makes batches of changes fit a table. They are all of one form."""

    def __init__(self, target: Target, key: Sequence[str]) -> None:
        """ValidationError or RefusedError if rows cannot be found by `key`."""
        _require_no_bookkeeping(key)
        self._target = target
        self._names = tuple(key)
        #: What the changes mean; None while nothing has come.
        self.form: Form | None = None

    @property
    def key(self) -> KeyColumns:
        return KeyColumns(schema=named_key(self._names, self._schema))

    @property
    def schema(self) -> pa.Schema:
        """Columns of what `fit` returns: the table's, all of them optional, and SIGN at last."""
        optional = [pa.field(column.name, column.type) for column in self._schema]
        return pa.schema([*optional, (SIGN, pa.int64())])

    @property
    def _schema(self) -> pa.Schema:
        return self._target.head.schema

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the table wants them, with SIGN; deletions need only have their keys.

        SchemaMismatchError if they do not fit, UnknownColumnError if they have no key.
        """
        self._require_plain_table()
        changes = read_changes(batch, columns=self._schema.names)
        self._take_form(changes.form)
        self._require_key(changes.rows)
        if changes.form is Form.ZSET:
            fitted = self._whole(changes.rows)
        else:
            fitted = self._whole_and_keys(changes)
        columns = [*fitted.columns, changes.signs]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def compared(self, changes: pa.Table, *, whole: bool) -> pa.Table:
        """Return changes in types that can be compared: their key, or the `whole` rows.

        `changes` are those of `fit`, and a number behind them; these two columns stay unchanged.
        """
        names = self._schema.names
        chosen = range(len(names)) if whole else [names.index(name) for name in self.key.names]
        table = require_support(self._target.handle, SupportsRowChanges, operation="upsert")
        found = table.comparable_rows(changes.select(list(chosen)))
        for place in (changes.num_columns - 2, changes.num_columns - 1):
            found = found.append_column(changes.schema.field(place), changes.column(place))
        return found

    def _take_form(self, form: Form) -> None:
        known = self.form
        if known is None or (known is Form.ROWS and form is Form.CDC):
            self.form = form
        elif form is not known and not (known is Form.CDC and form is Form.ROWS):
            message = f"changes of the form {form} cannot follow changes of the form {known}"
            raise errors.ValidationError(message, field=BOOKKEEPING[2])

    def _require_plain_table(self) -> None:
        for name in _DECIDING:
            if name in self._schema.names:
                raise errors.RefusedError(
                    f"{self._target.store.url} has a column {name!r}, which in a changelog says"
                    " what happened to a row",
                    table=self._target.store.url,
                    operation="upsert",
                    hint="nothing was taken; rename the column to upsert into this table",
                )

    def _require_key(self, rows: pa.RecordBatch) -> None:
        known = {name.lower() for name in rows.schema.names}
        for name in self.key.names:
            if name.lower() not in known:
                raise errors.UnknownColumnError(name, rows.schema.names)

    def _whole_and_keys(self, changes: Changes) -> pa.RecordBatch:
        """Return rows in their order: whole ones where they stay, and keys of those that go."""
        goes = changes.signs.to_numpy() < 0
        if not goes.any():
            return self._whole(changes.rows)
        staying = self._whole(changes.rows.filter(pa.array(~goes))) if not goes.all() else None
        going = self._keys(changes.rows.filter(pa.array(goes)))
        parts = [_unlabelled(part, self._schema) for part in (staying, going) if part is not None]
        order = np.argsort(np.concatenate([np.flatnonzero(~goes), np.flatnonzero(goes)]))
        together = pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks()
        [batch] = together.to_batches()
        return batch

    def _whole(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self._require_all_columns(rows)
        return self._target.fit(rows)

    def _require_all_columns(self, rows: pa.RecordBatch) -> None:
        """Refuse rows that lack a column: the row that they replace would lose its value."""
        known = {name.lower() for name in rows.schema.names}
        computed = self._target.head.row_rules.generated
        missing = [
            name
            for name in self._schema.names
            if name.lower() not in known and name not in computed
        ]
        if missing:
            differences = [f"column {name!r} is missing" for name in missing]
            raise errors.SchemaMismatchError(
                f"these rows cannot replace rows of {self._target.store.url}, because they are not"
                f" whole: {'; '.join(differences)}",
                table=self._target.store.url,
                difference=tuple(differences),
                hint="nothing of this batch was accepted; give all columns, null where there is"
                " nothing",
            )

    def _keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of which nothing is known but their keys."""
        wanted = {name.lower() for name in self.key.names}
        named = rows.select([name for name in rows.schema.names if name.lower() in wanted])
        optional = pa.schema([pa.field(column.name, column.type) for column in self.key.schema])
        keys = Conformer.of_keys(optional, self._target.head).conform(named)
        columns = [
            keys.column(column.name)
            if column.name in self.key.names
            else pa.nulls(rows.num_rows, column.type)
            for column in self._schema
        ]
        return _unlabelled(columns, self._schema)


def _unlabelled(rows: pa.RecordBatch | list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows under columns that may all be null."""
    columns = rows.columns if isinstance(rows, pa.RecordBatch) else rows
    fields = [
        pa.field(name, column.type) for name, column in zip(schema.names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _require_no_bookkeeping(key: Sequence[str]) -> None:
    for name in key:
        if name in BOOKKEEPING:
            message = f"{name!r} says what happened to a row, and cannot be a key"
            raise errors.ValidationError(message, field="key", value=name)
