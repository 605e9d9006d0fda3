"""The newest row of each key. Only keys pass through DuckDB; rows keep their types bit for bit.

Keys are compared as deduplication compares them: nulls equal each other, NaN equals NaN, and -0.0
equals 0.0.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.expressions.duckdb_session import select
from lakehand.hot.segments import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = ["check_key", "collapse", "keys_of", "rows_of", "without_keys"]


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
    """Return entries that say the same in as few words: the newest of each key, and each once.

    Without a key all rows count, and are only put together. `only` are the keys that matter.
    """
    runs = list(_runs(entries))
    if only is not None:
        runs = [(kind, _chosen(rows, _found(rows, only))) for kind, rows in runs]
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
    """Put neighbours of one kind together: a query costs as much as thousands of rows."""
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
        yield kind, _chosen(rows, stays[start : start + rows.num_rows])
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
    return _chosen(rows, ~_found(rows, keys))


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


def _chosen(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
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
