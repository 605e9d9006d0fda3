"""SQL literals that are valid in both Spark and DuckDB."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SPELLINGS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: str(value).lower(),
    dt.datetime: lambda value: f"TIMESTAMP '{value.isoformat(sep=' ')}'",
    dt.date: lambda value: f"DATE '{value.isoformat()}'",
    bytes: lambda value: f"X'{value.hex()}'",
    str: lambda value: "'" + value.replace("\\", "\\\\").replace("'", "''") + "'",
    float: lambda value: f"CAST({value!r} AS DOUBLE)",
    Decimal: lambda value: f"{value:f}",
    int: str,
}


def literal(value: Any) -> str:
    """Return `value` as an SQL literal.

    >>> literal("it's"), literal(dt.date(2026, 1, 2)), literal(None)
    ("'it''s'", "DATE '2026-01-02'", 'NULL')
    """
    return _SPELLINGS[type(value)](value)


def quote_identifier(name: str) -> str:
    """Return a name in double quotes, as DuckDB and the SQL standard have it.

    >>> quote_identifier('the "new" price')
    '"the ""new"" price"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_string(text: str) -> str:
    """Return a string literal for DuckDB, in which a backslash stands for itself.

    >>> quote_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
