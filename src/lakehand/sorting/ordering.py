"""Resolves a sort order against the schema of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.model.order import Curve, Order, Term
from lakehand.model.snapshot import Snapshot, quoted_column
from lakehand.sorting.curves import MAX_SORT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


#: Maximum precision that both Arrow and DuckDB compare.
_MAX_DIGITS = 38


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pat.is_decimal(kind) and kind.precision <= _MAX_DIGITS)


_ORDERABLE = (
    pat.is_boolean,
    pat.is_integer,
    pat.is_floating,
    _is_decimal,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_date,
    pat.is_timestamp,
)


def orderable_columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns whose values can be ordered, including struct fields."""
    return {quoted_column(path): kind for path, kind in _leaves(schema) if _is_orderable(kind)}


def resolve_order(
    terms: Sequence[Term],
    curve: Curve,
    schema: pa.Schema,
    *,
    partition_columns: Sequence[str] = (),
) -> Order:
    """Return the order with the table's column names; ValidationError if it is not possible."""
    if curve not in get_args(Curve):
        known = ", ".join(get_args(Curve))
        raise ValidationError(f"no curve named {curve!r}; the curves are: {known}", field="curve")
    known_columns = {quoted_column(path): (path, kind) for path, kind in _leaves(schema)}
    found = tuple(_resolved(term, known_columns, partition_columns) for term in terms)
    _check_together(found, curve)
    return Order(terms=found, curve=curve)


def _resolved(
    term: Term,
    known: dict[str, tuple[tuple[str, ...], pa.DataType]],
    partition_columns: Sequence[str],
) -> Term:
    orderable = [
        name
        for name, (path, kind) in known.items()
        if _is_orderable(kind) and path[0] not in partition_columns
    ]
    name = _spelled(term.column, known)
    if name is None:
        raise UnknownColumnError(term.column, orderable)
    path, kind = known[name]
    if name in orderable:
        return Term(path=path, descending=term.descending, nulls_first=term.nulls_first)
    why = "is a partition column, so each file has a single value"
    if path[0] not in partition_columns:
        why = f"has type {kind}, which cannot be sorted"
    raise ValidationError(
        f"cannot sort by {term.column!r}: it {why}; sortable columns: {', '.join(orderable)}",
        field=term.column,
    )


def _spelled(name: str, known: Collection[str]) -> str | None:
    """Return the column with this name; a name in another case must be unambiguous."""
    if name in known:
        return name
    found = [column for column in known if column.lower() == name.lower()]
    if len(found) > 1:
        message = f"{name!r} is ambiguous: it may be {', '.join(found)}"
        raise ValidationError(message, field=name, hint="use the exact name of the column")
    return found[0] if found else None


def _check_together(terms: Sequence[Term], curve: Curve) -> None:
    columns = [term.column for term in terms]
    if not columns:
        raise ValidationError("no columns to sort by", field="by")
    if len(columns) > MAX_SORT_COLUMNS:
        message = f"cannot sort by more than {MAX_SORT_COLUMNS} columns, got {len(columns)}"
        raise ValidationError(message, field="by")
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise ValidationError(f"cannot sort by {twice!r} twice", field=twice)
    directed = next((term for term in terms if term.descending), None)
    if directed is not None and curve != "linear":
        raise ValidationError(
            f"{directed.text!r} has a direction, which the curve {curve} does not support",
            field=directed.column,
            hint="remove DESC, or use the curve linear",
        )


def _leaves(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield all columns and struct fields; elements of lists and maps have no single value."""
    for field in fields:
        path = (*above, field.name)
        yield path, field.type
        if pat.is_struct(field.type):
            members = (field.type.field(number) for number in range(field.type.num_fields))
            yield from _leaves(members, path)


def _is_orderable(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _ORDERABLE)


def order_keys(snapshot: Snapshot, order: tuple[str, ...]) -> pa.Table | None:
    """Return the sort position of each file; None if the table has no order."""
    if not order:
        return None
    bounds = snapshot.files["bounds"]
    known = [name for name in order if bounds.type.get_field_index(name) >= 0]
    minima = [pc.struct_field(bounds, [name, "min"]) for name in known]
    return pa.table(minima, names=known) if known else None
