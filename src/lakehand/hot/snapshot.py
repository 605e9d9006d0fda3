"""What a hot table holds at one moment: a version of the cold table, and changes since."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.literals import literal
from lakehand.hot.newest import collapse, keys_of, rows_of, without_keys
from lakehand.rows.operation import gathered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.expressions.predicate import Predicate
    from lakehand.hot.cold import ColdView
    from lakehand.hot.segments import Entry

__all__ = ["HotSnapshot", "key_table"]


class HotSnapshot:
    """A consistent view of a hot table; later writes and flushes do not change it."""

    def __init__(
        self, view: ColdView, entries: Sequence[Entry], *, key: tuple[str, ...], sequence: int
    ) -> None:
        self._view = view
        self._entries = tuple(entries)
        self._key = key
        #: The newest change that can be seen.
        self.sequence = sequence

    @property
    def version(self) -> int:
        """Version of the cold table."""
        return self._view.snapshot.version

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        key: Any = None,
    ) -> pa.Table:
        """Return rows, hot and cold, each once and by its newest version.

        `where` is a condition in SQL; cold files that cannot hold a match are not read. `key` asks
        for one row: its value, or values by the columns of the key.
        """
        return self.to_batches(columns=columns, where=where, key=key).read_all()

    def to_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        key: Any = None,
    ) -> pa.RecordBatchReader:
        """Stream what `read` returns, for cold tables that are larger than memory."""
        schema = _chosen(self.schema, columns)
        only = None if key is None else self._key_row(key)
        newest = collapse(self._entries, self._key, only=only)
        condition = self._view.predicate(where)
        parts = self._hot(newest, schema, condition)
        if only is None or not newest:  # else memory says all that there is to say of the key
            parts = chain(parts, self._cold(newest, schema, self._narrowed(condition, only)))
        return pa.RecordBatchReader.from_batches(schema, parts)

    def _narrowed(self, condition: Predicate | None, only: pa.Table | None) -> Predicate | None:
        """Return the condition that only rows with a key fulfil, if one is asked for."""
        if only is None:
            return condition
        texts = [_equals(name, only[name][0]) for name in self._key]
        texts += [f"({condition.text})"] if condition is not None else []
        return self._view.predicate(" AND ".join(texts))

    def _hot(
        self, newest: Sequence[Entry], schema: pa.Schema, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        hot = rows_of(newest)
        for batch in () if hot is None else _aligned(hot, self.schema).to_batches():
            kept = batch if predicate is None else keep_true(predicate, batch)
            if kept.num_rows:
                yield kept.select(schema.names)

    def _cold(
        self, newest: Sequence[Entry], schema: pa.Schema, predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of the cold table, without those of keys that memory knows better."""
        masked = keys_of(newest, self._key) if self._key else None
        names = list(dict.fromkeys([*schema.names, *(self._key if masked is not None else ())]))
        cold = self._view.read(columns=names, predicate=predicate)
        if masked is None:
            yield from cold
            return
        for rows in gathered(cold):
            yield from without_keys(rows, masked).select(schema.names).to_batches()

    def _key_row(self, key: Any) -> pa.Table:
        """Return the key that is asked for as a table of one row."""
        if not self._key:
            message = "the hot table has no key: ask with where"
            raise ValidationError(message, field="key", value=key)
        values = key if isinstance(key, dict) else {self._key[0]: key}
        if set(values) != set(self._key):
            message = f"the key is of the columns {list(self._key)}: give a value for each"
            raise ValidationError(message, field="key", value=key)
        return key_table({name: [values[name]] for name in self._key}, self.schema)


def key_table(values: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return keys, column by column, in the types of the table."""
    try:
        arrays = {name: pa.array(found, schema.field(name).type) for name, found in values.items()}
    except (pa.ArrowException, TypeError, OverflowError) as error:
        message = f"this is no key of the table: {str(error).partition(chr(10))[0]}"
        raise ValidationError(message, field="key", value=dict(values)) from error
    return pa.table(arrays)


def _equals(name: str, value: pa.Scalar) -> str:
    column = "`" + name.replace("`", "``") + "`"
    return f"{column} = {literal(value.as_py())}" if value.is_valid else f"{column} IS NULL"


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if isinstance(columns, str) or not columns:
        raise ValidationError("columns is a list of names", field="columns", value=columns)
    for name in columns:
        if name not in schema.names:
            raise UnknownColumnError(name, schema.names)
    return pa.schema([schema.field(name) for name in columns])


def _aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows under `schema`, of which they may be an older or a newer form."""
    columns: Mapping[str, pa.ChunkedArray] = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = [
        columns[column.name].cast(column.type)
        if column.name in columns
        else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
