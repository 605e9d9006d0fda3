"""When two rows count as one, and which of them stays. Words first, then as SQL.

Nulls equal each other. Among numbers NaN equals NaN, and for keys -0.0 equals 0.0, as in Spark's
GROUP BY; exact duplicates tell these two apart, as the digest of rows does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import UnknownColumnError, ValidationError
from lakehand.prove.row_hash import lane_expressions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Keep", "Sameness", "key_value", "named_key"]

Keep = Literal["first", "last", "latest"]

_KEEPS: tuple[Keep, ...] = ("first", "last", "latest")
#: From the oldest row to the newest. Rows without a version of their own are older than others.
_AGE = ("row_version", "row_id", "file_rank", "position")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sameness:
    """What makes rows duplicates of each other, and which one of them is kept. Picklable."""

    #: The columns that are compared, with their types.
    schema: pa.Schema
    #: Whole rows are compared, down to the sign of a zero.
    exact: bool
    keep: Keep
    #: Whose greatest value is kept by `latest`.
    order_by: str | None = None

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        key: Sequence[str] | None,
        exact: bool,
        keep: str,
        order_by: str | None,
    ) -> Sameness:
        """Return what a caller asks for; ValidationError if that is nothing definite."""
        if exact == bool(key):
            message = "say which rows count as duplicates: key columns, or exact duplicates"
            raise ValidationError(
                message, field="key", hint="give a key, or ask for exact duplicates; not both"
            )
        if keep not in _KEEPS:
            message = f"keep is one of {', '.join(_KEEPS)}, not {keep!r}"
            raise ValidationError(message, field="keep", value=keep)
        if (keep == "latest") != (order_by is not None):
            message = "a column to order by is needed to keep the latest row, and for nothing else"
            raise ValidationError(message, field="order_by", value=order_by)
        names = schema.names if exact else _once(key or ())
        _require_known([*names, *([order_by] if order_by else [])], schema)
        chosen: Keep = next(known for known in _KEEPS if known == keep)
        return cls(schema=_part(schema, names), exact=exact, keep=chosen, order_by=order_by)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared."""
        return tuple(self.schema.names)

    @property
    def columns_and_order(self) -> tuple[str, ...]:
        """The same, and the one that says which row is kept."""
        extra = (self.order_by,) if self.order_by and self.order_by not in self.columns else ()
        return (*self.columns, *extra)

    def hash_query(self, source: str) -> str:
        """Return SQL for two hashes of each row of `source`, and where the row lies.

        `source` has the columns that are compared, and then the row's place.
        """
        first, second = self._lanes()
        names = [f"u{n}" for n in range(len(self.schema))]
        values = ", ".join(f"{value} AS c{n}" for n, value in enumerate(self._values()))
        return (
            f"SELECT {first} AS lane_1, {second} AS lane_2, number, position FROM (SELECT {values},"
            f" number, position FROM {_renamed(source, names)})"
        )

    def values_query(self, source: str, twins: str, *, is_tracked: bool) -> str:
        """Return SQL for all that decides over the rows of `source` that are in `twins`.

        `source` has the columns that are compared, the one to order by if it is not among them,
        the identity of the row if it `is_tracked`, and its place.
        """
        names = [f"u{n}" for n in range(len(self.columns_and_order))]
        identity = ["row_id", "row_version"] if is_tracked else []
        versions = (
            "row_version, row_id"
            if is_tracked
            else "NULL::BIGINT AS row_version, NULL::BIGINT AS row_id"
        )
        order = "NULL::INTEGER"
        if self.order_by is not None:
            order = names[self.columns_and_order.index(self.order_by)]
        values = ", ".join(f"{value} AS k{n}" for n, value in enumerate(self._values()))
        return (
            f"SELECT lane_1, lane_2, file, position, file_rank, {versions}, "
            f"{order} AS order_value, {values} "
            f"FROM {_renamed(source, [*names, *identity])} JOIN {twins} USING (number, position)"
        )

    def rank_query(self, source: str) -> str:
        """Return SQL that numbers the rows of `source` that are equal, the one to keep first."""
        keys = ", ".join(f"k{n}" for n in range(len(self.schema)))
        group = f"PARTITION BY lane_1, lane_2, {keys}"
        return (
            f"SELECT file, position, row_number() OVER ({group} ORDER BY {self._order()}) AS place,"
            f" count(*) OVER ({group}) AS copies FROM {source}"
        )

    def _order(self) -> str:
        if self.keep == "first":
            return ", ".join(f"{name} ASC NULLS FIRST" for name in _AGE)
        newest_first = ", ".join(f"{name} DESC NULLS LAST" for name in _AGE)
        return f"order_value DESC NULLS LAST, {newest_first}"

    def _lanes(self) -> tuple[str, str]:
        if self.exact:
            return lane_expressions(self.schema)
        names = [f"c{n}" for n in range(len(self.schema))]
        forward, backward = ", ".join(names), ", ".join(reversed(names))
        return f"hash(hash({forward}))", f"hash(hash({backward}), 42)"

    def _values(self) -> list[str]:
        types = enumerate(self.schema.types)
        names = ((f"u{n}", kind) for n, kind in types)
        return [name if self.exact else key_value(name, kind) for name, kind in names]


def _renamed(source: str, names: Sequence[str]) -> str:
    """Give the columns of `source` names that no table can spoil by its own."""
    return f"{source} AS given({', '.join([*names, 'number', 'position'])})"


def key_value(name: str, kind: pa.DataType) -> str:
    """Return SQL for a value of a key, which is the same for values that count as one."""
    if not pat.is_floating(kind):
        return name
    # One zero for both: hashes and comparisons need not agree on them.
    return f"CASE WHEN {name} = 0 THEN 0 ELSE {name} END"


def named_key(key: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Return the columns of a key; ValidationError if there is none, or no such column."""
    names = _once(key)
    if not names:
        raise ValidationError("a key has at least one column", field="key", value=key)
    _require_known(names, schema)
    return _part(schema, names)


def _once(key: Sequence[str]) -> list[str]:
    if isinstance(key, str) or len(set(key)) < len(key):
        message = "key is a list of columns, each named once"
        raise ValidationError(message, field="key", value=key)
    return list(key)


def _require_known(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise UnknownColumnError(name, schema.names)


def _part(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
