"""When two rows count as one, and which of them stays. Words first, then as SQL.

Nulls equal each other. Among numbers NaN equals NaN, and for keys -0.0 equals 0.0, as in Spark's
GROUP BY; exact duplicates tell these two apart, as the digest of rows does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as pat

from lakehand.errors import RefusedError, UnknownColumnError, ValidationError
from lakehand.prove.deep_lists import is_deep
from lakehand.prove.digest import lane_expressions

if TYPE_CHECKING:
    from collections.abc import Sequence

Keep = Literal["first", "last", "latest"]

_KEEPS: tuple[Keep, ...] = ("first", "last", "latest")
#: From the oldest row to the newest. Rows without a row version are older than others.
_AGE = ("row_version", "row_id", "file_rank", "position")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyEquality:
    """What makes rows duplicates of each other, and which one of them is kept. Picklable."""

    #: The columns that are compared, with their types.
    schema: pa.Schema
    #: Whole rows are compared, down to the sign of a zero.
    exact: bool
    keep: Keep
    #: Column whose maximum is kept by `latest`, and whether its values are strings.
    order_by: str | None = None
    orders_texts: bool = False

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        key: Sequence[str] | None,
        exact: bool,
        keep: str,
        order_by: str | None,
    ) -> KeyEquality:
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
        if exact and is_deep(schema):
            raise RefusedError(
                "exact duplicates cannot be found where lists or maps are nested this deeply",
                feature="deeply nested lists",
                operation="deduplicate",
                hint="nothing was written; name key columns instead",
            )
        chosen: Keep = next(known for known in _KEEPS if known == keep)
        return cls(
            schema=_part(schema, names),
            exact=exact,
            keep=chosen,
            order_by=order_by,
            orders_texts=order_by is not None and _is_text(schema.field(order_by).type),
        )

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
        """Return SQL for a hash of each row of `source`, and where the row lies.

        `source` has the columns that are compared, and then the row's place. Rows that count as
        one have the same hash, and so may others.
        """
        names = [f"c{n}" for n in range(len(self.schema))]
        return f"SELECT {self._hash()} AS hash, number, position FROM {_renamed(source, names)}"

    def values_query(self, source: str, files: str, *, is_tracked: bool) -> str:
        """Return SQL for all that decides over the rows of `source`, which lie in `files`.

        `source` has the columns that are compared, the one to order by if it is not among them,
        the identity of the row if it `is_tracked`, and its place.
        """
        names = [f"c{n}" for n in range(len(self.columns_and_order))]
        identity = ["row_id", "row_version"] if is_tracked else []
        versions = (
            "row_version, row_id"
            if is_tracked
            else "NULL::BIGINT AS row_version, NULL::BIGINT AS row_id"
        )
        order = "NULL::INTEGER"
        if self.order_by is not None:
            order = names[self.columns_and_order.index(self.order_by)]
            order = f"encode({order})" if self.orders_texts else order
        values = ", ".join(f"{value} AS k{n}" for n, value in enumerate(self._compared()))
        return (
            f"SELECT {self._hash()} AS hash, file, position, file_rank, {versions}, "
            f"{order} AS order_value, {values} "
            f"FROM {_renamed(source, [*names, *identity])} JOIN {files} USING (number)"
        )

    def winners_query(self, source: str) -> str:
        """Return SQL for the row to keep of equal ones in `source`, and for how many these are.

        A window would sort the rows of each key; here each is looked at once.
        """
        keys = ", ".join(f"k{n}" for n in range(len(self._compared())))
        place = "{'file': file, 'position': position}"
        return (
            f"SELECT arg_min({place}, {self._order()}) AS kept, count(*) AS copies FROM {source}"
            f" GROUP BY hash, {keys}"
        )

    def _order(self) -> str:
        """Return SQL for bytes that are the smallest for the row to keep."""
        direction = "ASC NULLS FIRST" if self.keep == "first" else "DESC NULLS LAST"
        names = _AGE if self.keep == "first" else ("order_value", *_AGE)
        ordered = ", ".join(f"{name}, '{direction}'" for name in names)
        return f"create_sort_key({ordered})"

    def _hash(self) -> str:
        if self.exact:
            return lane_expressions(self.schema)[0]
        # The outer one mixes once more: tasks share hashes by what is left of a division.
        return f"hash(hash({', '.join(self._values())}))"

    def _compared(self) -> list[str]:
        """Return SQL for all that equal rows have in common."""
        # Signs of zeros are in no comparison of values, but in both hashes of whole rows.
        signs = [lane_expressions(self.schema)[1]] if self.exact else []
        types = zip(self._values(), self.schema.types, strict=True)
        # Strings of some engines are not UTF-8, which DuckDB refuses; bytes are always accepted.
        return [*(f"encode({name})" if _is_text(kind) else name for name, kind in types), *signs]

    def _values(self) -> list[str]:
        types = enumerate(self.schema.types)
        names = ((f"c{n}", kind) for n, kind in types)
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


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _part(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
