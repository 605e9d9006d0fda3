"""What a statement returns: rows, or the report of a verb."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlResult:
    """The result of a statement. `to_json` is the same document in Python, CLI and HTTP."""

    #: What ran: `optimize`, `show jobs`, `select`, ...
    statement: str
    #: Rows, with name and type of each of the `columns`; missing for a verb, which has a report.
    rows: pa.Table | None = None
    #: Report of the verb, as its own command prints it; null for rows and for ASYNC.
    report: Mapping[str, Any] | None = None
    #: The job of the service that ran it, or that will; null if it ran here.
    job: Mapping[str, Any] | None = None
    #: What the method returned, with its types: a report, plan, job or table; null for rows.
    value: Any = None
    #: Whether there are more rows than the limit.
    truncated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        if self.rows is None:
            job = None if self.job is None else plain_value(self.job)
            return {"statement": self.statement, "report": self._plain_report(), "job": job}
        return {
            "statement": self.statement,
            "columns": [
                {"name": field.name, "type": str(field.type)} for field in self.rows.schema
            ],
            "rows": self.to_pylist(),
            "truncated": self.truncated,
        }

    def _plain_report(self) -> Any:
        return None if self.report is None else plain_value(self.report)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries with values of JSON; a report is one row."""
        if self.rows is None:
            given = self.report if self.report is not None else self.job or {}
            return [plain_value(given)]
        return [plain_value(row) for row in self.rows.to_pylist(maps_as_pydicts="strict")]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; a report is one row, its nested values are JSON."""
        return self.rows if self.rows is not None else table_of(self.to_pylist())

    def to_ipc(self) -> bytes:
        """Return the rows as an Arrow IPC stream."""
        table = self.to_arrow()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def to_csv(self) -> str:
        """Return the rows as CSV with a header; nested values are JSON."""
        page = StringIO()
        rows = self.to_pylist()
        names = self.to_arrow().column_names
        writer = csv.writer(page, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(row[name]) for name in names] for row in rows)
        return page.getvalue()


def table_of(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> pa.Table:
    """Return rows as an Arrow table; `columns` are those of a table without rows."""
    names = list(rows[0]) if rows else list(columns)
    arrays = [_array([row.get(name) for row in rows]) for name in names]
    return pa.Table.from_arrays(arrays, names)


def _array(values: Sequence[Any]) -> pa.Array:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, list) and _all_strings(value) for value in known):
        return pa.array(values, pa.list_(pa.string()))
    if known and all(isinstance(value, dict) and _all_strings(value.values()) for value in known):
        return pa.array(values, pa.map_(pa.string(), pa.string()))
    flat = [_flat(value) for value in values]
    try:
        found = pa.array(flat)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        found = pa.array([None if value is None else str(value) for value in flat], pa.string())
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found


def _all_strings(values: Iterable[Any]) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _flat(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return json.dumps(plain_value(value)) if isinstance(value, dict | list | tuple) else value


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list) else value


_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (date, lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    (Decimal, float),
)


def plain_value(value: Any) -> Any:
    """Return a value of JSON: times in ISO 8601, durations in seconds, no NaN.

    >>> plain_value({"at": date(2026, 1, 2), "ratio": float("nan"), "by": ("a",)})
    {'at': '2026-01-02', 'ratio': None, 'by': ['a']}
    """
    if hasattr(value, "items"):
        return {str(name): plain_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    for kind, convert in _CONVERSIONS:
        if isinstance(value, kind):
            return convert(value)
    return str(value)
