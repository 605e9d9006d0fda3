"""Rows of a changelog as a table wants them: whole ones where they stay, keys where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.errors import RefusedError, SchemaMismatchError, UnknownColumnError, ValidationError
from lakehand.rows.incoming import KeyColumns
from lakehand.rows.sameness import named_key
from lakehand.sink.changelog import BOOKKEEPING, SIGN, Changes, Form, read_changes
from lakehand.sink.conform import Conformer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.sink.target import Target

__all__ = ["ChangeRows", "row_schema"]

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
        """Return rows as the table wants them, with SIGN; of rows that go only keys need be there.

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

        `changes` are those of `fit`, and a number behind them; these two columns stay as they are.
        """
        names = self._schema.names
        chosen = range(len(names)) if whole else [names.index(name) for name in self.key.names]
        found = self._target.handle.comparable_rows(changes.select(list(chosen)))
        for place in (changes.num_columns - 2, changes.num_columns - 1):
            found = found.append_column(changes.schema.field(place), changes.column(place))
        return found

    def _take_form(self, form: Form) -> None:
        known = self.form
        if known is None or (known is Form.ROWS and form is Form.CDC):
            self.form = form
        elif form is not known and not (known is Form.CDC and form is Form.ROWS):
            message = f"changes of the form {form} cannot follow changes of the form {known}"
            raise ValidationError(message, field=BOOKKEEPING[2])

    def _require_plain_table(self) -> None:
        for name in _DECIDING:
            if name in self._schema.names:
                raise RefusedError(
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
                raise UnknownColumnError(name, rows.schema.names)

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
        """Refuse rows that lack a column: what is there under their key would lose its value."""
        known = {name.lower() for name in rows.schema.names}
        computed = self._target.head.row_rules.generated
        missing = [
            name
            for name in self._schema.names
            if name.lower() not in known and name not in computed
        ]
        if missing:
            differences = [f"column {name!r} is missing" for name in missing]
            raise SchemaMismatchError(
                f"these rows cannot replace rows of {self._target.store.url}, because they are not"
                f" whole: {'; '.join(differences)}",
                table=self._target.store.url,
                difference=tuple(differences),
                hint="nothing of this batch was taken; give all columns, null where there is"
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
            raise ValidationError(message, field="key", value=name)
