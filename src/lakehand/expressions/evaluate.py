"""Filters rows by a predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import PredicateError
from lakehand.expressions.computed import column_at
from lakehand.expressions.duckdb_session import compute
from lakehand.expressions.engine_types import engine_values
from lakehand.expressions.name_resolution import reference_name
from lakehand.expressions.value_lists import with_lists

if TYPE_CHECKING:
    from lakehand.expressions.predicate import Predicate


def keep_true(predicate: Predicate, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of `batch` for which `predicate` is true, in their order.

    Only the columns of the predicate are passed to DuckDB; the rows are filtered by Arrow and so
    keep their types bit for bit.
    """
    if not batch.num_rows:
        return batch
    return batch.filter(_truth(predicate, batch), null_selection_behavior="drop")


def _truth(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    values = {
        reference_name(index): evaluable(batch, path)
        for index, path in enumerate(predicate.references)
    }
    if not values:
        values = {"row": pa.nulls(batch.num_rows)}
    answer = compute(predicate.sql, with_lists(pa.table(values), predicate.lists))
    return answer.column(0).combine_chunks()


def evaluable(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return the values of a column as DuckDB takes them; PredicateError if it cannot."""
    values = column_at(batch, path)
    try:
        # Spark's strings may contain any bytes, on which DuckDB fails.
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        name = ".".join(path)
        message = f"the predicate cannot be evaluated: column {name!r} has invalid UTF-8"
        raise PredicateError(message, field=name) from error
    return engine_values(values)
