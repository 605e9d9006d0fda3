"""Known facts about a predicate's columns in each file, as columns of one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.model.snapshot import quoted_column

if TYPE_CHECKING:
    from lakehand.expressions.predicate import Predicate

#: Placeholder of a bound in a conversion.
VALUE = "a_bound"
#: Timestamp bounds are truncated to milliseconds in logs, so the true maximum may be this much
#: later.
_TIMESTAMP_SLACK_MICROSECONDS = 1000
_LATEST_MICROSECONDS = 2**63 - 1 - _TIMESTAMP_SLACK_MICROSECONDS


class Family(Enum):
    """Types whose values are compared in one order, whatever their exact types."""

    BOOLEAN = auto()
    NUMBER = auto()
    #: Numbers with NaN, which is above all others and not included in bounds.
    FLOAT = auto()
    TEXT = auto()
    TIME = auto()


class Knowledge(Enum):
    """How much is known of a column."""

    #: The single value that all rows of a file share.
    VALUE = auto()
    BOUNDS = auto()
    NOTHING = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of the predicate; its properties are SQL over the table of facts."""

    name: str
    knowledge: Knowledge
    family: Family | None = None
    #: Conversion of `VALUE` before it is compared.
    conversion: str = VALUE

    @property
    def min(self) -> str:
        return self.conversion.replace(VALUE, self.low)

    @property
    def max(self) -> str:
        return self.conversion.replace(VALUE, self.high)

    @property
    def low(self) -> str:
        """The column of the table with the minimum values."""
        return f"{self.name}_min"

    @property
    def high(self) -> str:
        """The column of the table with the maximum values."""
        return f"{self.name}_max"

    @property
    def may_be_null(self) -> str:
        return f"coalesce({self.name}_nulls <> 0, true)"

    @property
    def may_be_set(self) -> str:
        return f"coalesce({self.name}_nulls < rows, true)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One row per file. `columns` has the known facts of each reference."""

    table: pa.Table
    columns: dict[str, Column]


def gather_facts(predicate: Predicate, files: pa.Table) -> Facts:
    """Select what the predicate needs from a table with `rows`, `partition` and `bounds`.

    The columns are those of `Snapshot.files`; both structs are optional.
    """
    from lakehand.expressions.name_resolution import reference_name  # a slow import

    table: dict[str, pa.ChunkedArray] = {"rows": files["rows"]}
    columns: dict[str, Column] = {}
    for index, path in enumerate(predicate.references):
        name = reference_name(index)
        column, values = _facts_of(name, path, predicate.types[index], files)
        columns[name] = column
        table.update(values)
    return Facts(table=pa.table(table), columns=columns)


def _facts_of(
    name: str, path: tuple[str, ...], type_: pa.DataType, files: pa.Table
) -> tuple[Column, dict[str, pa.ChunkedArray]]:
    value = _member(files, "partition", path[0])
    if value is not None and len(path) == 1:
        return Column(name=name, knowledge=Knowledge.VALUE), {name: value}
    bounds = _member(files, "bounds", quoted_column(path))
    family = family_of(type_)
    if bounds is None or family is None:
        return Column(name=name, knowledge=Knowledge.NOTHING), {}
    column = Column(name=name, knowledge=Knowledge.BOUNDS, family=family)
    return column, _bound_columns(column, bounds)


def _member(files: pa.Table, struct: str, name: str) -> pa.ChunkedArray | None:
    if (
        struct not in files.schema.names
        or files.schema.field(struct).type.get_field_index(name) < 0
    ):
        return None
    return pc.struct_field(files[struct], name)


def _bound_columns(column: Column, bounds: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    low, high = comparable_bounds(bounds)
    nulls = pc.struct_field(bounds, "nulls")
    return {column.low: low, column.high: high, f"{column.name}_nulls": nulls}


def comparable_bounds(bounds: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the minimum and maximum of all values; null if not known."""
    low, high = pc.struct_field(bounds, "min"), pc.struct_field(bounds, "max")
    if pa.types.is_floating(low.type):
        low, high = _without_nan(low), _without_nan(high)
    if pa.types.is_timestamp(high.type):
        high = _with_slack(high)
    return low, high


def _without_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _with_slack(values: pa.ChunkedArray) -> pa.ChunkedArray:
    microseconds = values.cast(pa.timestamp("us", tz=values.type.tz)).cast(pa.int64())
    later = pc.add(microseconds, _TIMESTAMP_SLACK_MICROSECONDS)
    beyond = pc.greater(microseconds, _LATEST_MICROSECONDS)
    capped = pc.if_else(beyond, pa.scalar(None, pa.int64()), later)
    return capped.cast(pa.timestamp("us", tz=values.type.tz))


def family_of(type_: pa.DataType) -> Family | None:
    """Return how values of a type compare; None if their bounds cannot be used."""
    types = pa.types
    tests = {
        Family.BOOLEAN: types.is_boolean(type_),
        Family.FLOAT: types.is_floating(type_),
        Family.NUMBER: types.is_integer(type_) or types.is_decimal(type_),
        Family.TEXT: types.is_string(type_) or types.is_large_string(type_),
        Family.TIME: types.is_date32(type_) or types.is_timestamp(type_),
    }
    return next((family for family, matches in tests.items() if matches), None)
