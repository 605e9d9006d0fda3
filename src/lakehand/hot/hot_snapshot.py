"""Snapshots of a hot table: a version of the cold table, and the changes since."""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.expressions.duckdb_session import select
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.literals import literal
from lakehand.hot.segments import Entry, Kind
from lakehand.rows.row_operation import query_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate
    from lakehand.hot.cold import ColdView


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
        if (
            only is None or not newest
        ):  # else the newest row of the key, or its deletion, is in memory
            parts = chain(parts, self._cold(newest, schema, self._narrowed(condition, only)))
        return pa.RecordBatchReader.from_batches(schema, parts)

    def _narrowed(self, condition: Predicate | None, only: pa.Table | None) -> Predicate | None:
        """Return the condition that only rows with a key fulfil, if one is asked for."""
        if only is None:
            return condition
        conditions = [_equals(name, only[name][0]) for name in self._key]
        conditions += [f"({condition.text})"] if condition is not None else []
        return self._view.predicate(" AND ".join(conditions))

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
        """Yield rows of the cold table, except for keys with newer changes in memory."""
        masked = keys_of(newest, self._key) if self._key else None
        names = list(dict.fromkeys([*schema.names, *(self._key if masked is not None else ())]))
        cold = self._view.read(columns=names, predicate=predicate)
        if masked is None:
            yield from cold
            return
        for rows in query_tables(cold):
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


# The newest row of each key. Only keys pass through DuckDB; rows keep their types bit for bit.
# Keys are compared as deduplication compares them: nulls equal each other, NaN equals NaN, and
# -0.0 equals 0.0.


def check_key(key: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a key; ValidationError if rows cannot be told apart by them."""
    if isinstance(key, str) or len(set(key)) < len(key):
        message = "key is a list of columns, each named once"
        raise ValidationError(message, field="key", value=key)
    for name in key:
        if name not in schema.names:
            raise UnknownColumnError(name, schema.names)
        if pat.is_nested(schema.field(name).type):
            message = f"column {name!r} is {schema.field(name).type}, and cannot be part of a key"
            raise ValidationError(message, field="key", value=list(key))
    return tuple(key)


def collapse(
    entries: Sequence[Entry], key: Sequence[str], *, only: pa.Table | None = None
) -> tuple[Entry, ...]:
    """Merge entries: the newest row or deletion per key, in one entry of each kind.

    Without a key all rows stay, and are only concatenated. `only` are the keys to keep.
    """
    runs = list(_runs(entries))
    if only is not None:
        runs = [(kind, _filtered(rows, _found(rows, only))) for kind, rows in runs]
    if key and runs:
        runs = list(_newest(runs, key))
    found = ((kind, [rows for k, rows in runs if k is kind and rows.num_rows]) for kind in Kind)
    sequence = entries[-1].sequence if entries else 0
    return tuple(
        _joined(kind, pa.concat_tables(parts, promote_options="permissive"), sequence)
        for kind, parts in found
        if parts
    )


def _joined(kind: Kind, rows: pa.Table, sequence: int) -> Entry:
    whole = rows.combine_chunks()
    return Entry(sequence=sequence, kind=kind, rows=whole, bytes=whole.nbytes)


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[Kind, pa.Table]]:
    """Concatenate neighbours of one kind: a query costs as much as thousands of rows."""
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        parts = [entry.rows for entry in group]
        rows = pa.concat_tables(parts, promote_options="permissive") if parts[1:] else parts[0]
        yield kind, rows


def _newest(
    runs: Sequence[tuple[Kind, pa.Table]], key: Sequence[str]
) -> Iterator[tuple[Kind, pa.Table]]:
    keys = pa.concat_tables(
        [rows.select(list(key)) for _, rows in runs], promote_options="permissive"
    )
    columns = ", ".join(_compared(keys.schema))
    query = f"SELECT max(position) AS position FROM given GROUP BY {columns}"
    stays = _marked(select(query, given=_numbered(keys))["position"], keys.num_rows)
    start = 0
    for kind, rows in runs:
        yield kind, _filtered(rows, stays[start : start + rows.num_rows])
        start += rows.num_rows


def rows_of(entries: Sequence[Entry]) -> pa.Table | None:
    """Return the rows of entries that `collapse` made; None if there are none."""
    return next((entry.rows for entry in entries if entry.kind is Kind.ROWS), None)


def keys_of(entries: Sequence[Entry], key: Sequence[str]) -> pa.Table | None:
    """Return the keys that entries say anything about; None if there are none."""
    parts = [entry.rows.select(list(key)) for entry in entries]
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key is not among `keys`, in their order."""
    return _filtered(rows, ~_found(rows, keys))


def _found(rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.bool_]:
    """Say of each row whether its key is among `keys`."""
    own = rows.select(keys.schema.names)
    pairs = zip(_compared(own.schema, "given."), _compared(keys.schema, "known."), strict=True)
    same = " AND ".join(f"{mine} IS NOT DISTINCT FROM {other}" for mine, other in pairs)
    query = f"SELECT position FROM given SEMI JOIN known ON {same}"
    positions = select(query, given=_numbered(own), known=_numbered(keys))["position"]
    return _marked(positions, rows.num_rows)


def _marked(positions: pa.ChunkedArray, count: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(count, dtype=bool)
    found[positions.to_numpy()] = True
    return found


def _filtered(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))


def _numbered(keys: pa.Table) -> pa.Table:
    """Return keys under names that no table can spoil by its own, each with its number."""
    names = [f"k{number}" for number in range(keys.num_columns)]
    positions = pa.array(np.arange(keys.num_rows, dtype=np.int64))
    return keys.rename_columns(names).append_column("position", positions)


def _compared(schema: pa.Schema, prefix: str = "") -> list[str]:
    return [_value(f"{prefix}k{n}", column.type) for n, column in enumerate(schema)]


def _value(name: str, kind: pa.DataType) -> str:
    # One zero for both: hashes and comparisons need not agree on them.
    return f"CASE WHEN {name} = 0 THEN 0 ELSE {name} END" if pat.is_floating(kind) else name
