"""Footers of files held against the bounds that the table has for them.

A file that was replaced by another one of equal size shows here, without any row being decoded.
Only such columns are compared as all writers agree on: numbers without fractions, and times.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.files.row_group_bounds import row_group_facts
from lakehand.parquet.columns import file_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.parquet as pq

    from lakehand.formats.delta.files.context import WriteContext

__all__ = ["footer_contradictions"]

#: Bounds of times are cut to the millisecond, upper ones too, and readers know that.
_TICK = timedelta(milliseconds=1)
#: Engines disagree on the calendar of earlier days.
_FIRST_SURE_YEAR = 1600


def footer_contradictions(
    metadata: pq.FileMetaData, bounds: Mapping[str, Any] | None, context: WriteContext
) -> Iterator[str]:
    """Yield in words every bound of the table that leaves out values which a footer has.

    `metadata` is of a footer that was checked.
    """
    named = [name for name, stated in (bounds or {}).items() if stated is not None]
    if not bounds or not named or not metadata.num_row_groups:
        return
    facts = row_group_facts(
        [metadata.row_group(index) for index in range(metadata.num_row_groups)],
        file_columns(metadata.schema.to_arrow_schema()),
        [(name,) for name in named],
        schema=context.schema,
        mode=context.mode,
        partition={},
    )
    if "bounds" not in facts.column_names:
        return
    found = facts["bounds"].combine_chunks()
    for name in (field.name for field in found.type):
        column = found.field(name)
        low, high = _value(pc.min(column.field("min"))), _value(pc.max(column.field("max")))
        stated = bounds[name]
        if _is_less(low, stated["min"]):
            yield f"{name} has {low} in the footer, and {stated['min']} as its least value"
        if _is_less(stated["max"], high, slack=True):
            yield f"{name} has {high} in the footer, and {stated['max']} as its greatest value"


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _is_less(one: Any, other: Any, *, slack: bool = False) -> bool:
    if one is None or other is None:
        return False
    if isinstance(one, date) and min(one.year, other.year) < _FIRST_SURE_YEAR:
        return False
    if slack and isinstance(one, datetime):
        return bool(other - one >= _TICK)
    return bool(one < other)
