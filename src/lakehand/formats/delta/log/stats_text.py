"""Statistics of checkpoints that keep them as structs (`stats_parsed`), as the JSON of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["text_of_parsed"]


def text_of_parsed(expression: str, type_: pa.StructType) -> str:
    """Return SQL that prints a struct of statistics as JSON; members that are null are left out.

    DuckDB's own printing would lose digits of decimals and write NaN as no JSON reader takes it.
    """
    return f"CASE WHEN {expression} IS NOT NULL THEN {_object(expression, type_)} END"


def _object(expression: str, type_: pa.StructType) -> str:
    members = ", ".join(_member(expression, member) for member in type_)
    return f"'{{' || concat_ws(',', {members}) || '}}'" if members else "'{}'"


def _member(expression: str, member: pa.Field) -> str:
    inner = f'{expression}."{member.name.replace(chr(34), chr(34) * 2)}"'
    name = member.name.replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    return f"CASE WHEN {inner} IS NOT NULL THEN '\"{name}\":' || {_value(inner, member.type)} END"


def _value(expression: str, type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return _object(expression, type_)
    if pa.types.is_timestamp(type_):
        zone = "Z" if type_.tz or type_.unit == "ns" else ""
        form = f"%Y-%m-%dT%H:%M:%S.%f{zone}"
        return f"'\"' || strftime(CAST({expression} AS TIMESTAMP), '{form}') || '\"'"
    if pa.types.is_date(type_):
        return f"'\"' || CAST({expression} AS VARCHAR) || '\"'"
    if pa.types.is_floating(type_):
        text = f"CAST({expression} AS VARCHAR)"
        return f"CASE WHEN isfinite({expression}) THEN {text} ELSE {_special(expression)} END"
    if _prints_bare(type_):
        return f"CAST({expression} AS VARCHAR)"
    return f"CAST(to_json(CAST({expression} AS VARCHAR)) AS VARCHAR)"


def _special(expression: str) -> str:
    infinite = f"CASE WHEN {expression} > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    return f"CASE WHEN isnan({expression}) THEN '\"NaN\"' ELSE {infinite} END"


def _prints_bare(type_: pa.DataType) -> bool:
    checks: Iterable[bool] = (
        pa.types.is_integer(type_),
        pa.types.is_decimal(type_),
        pa.types.is_boolean(type_),
    )
    return any(checks)
