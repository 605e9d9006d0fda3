"""Columns as some writer stores them: in another order, of narrower types, less what is null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from support.table_columns import Column, Mode

_FIELD_ID = "PARQUET:field_id"
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

Stored = tuple[pa.Field, list[Any]]


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one writer deviates from the schema of the table."""

    rng: random.Random
    mode: Mode
    reorders: bool
    narrows: bool
    leaves_out: bool
    #: Says that a column has no nulls where it has none.
    requires: bool

    @classmethod
    def random(cls, rng: random.Random, mode: Mode) -> Self:
        flags = {name: rng.random() < 0.3 for name in ("narrows", "leaves_out", "requires")}
        return cls(rng=rng, mode=mode, reorders=rng.random() < 0.3, **flags)


def store_column(column: Column, values: Sequence[Any], style: Style) -> Stored:
    """Return the field of a file and the values that hold `values` of a column."""
    kind, stored = _store(column, list(values), style)
    has_ids = style.mode == "id" or (style.mode == "name" and style.rng.random() < 0.5)
    # Where ids decide, names are free.
    name = f"x{column.id}" if style.mode == "id" else column.physical_name(style.mode)
    metadata = {_FIELD_ID: str(column.id)} if has_ids else None
    nullable = not (style.requires and None not in values)
    return pa.field(name, kind, nullable, metadata), stored


def _store(column: Column, values: list[Any], style: Style) -> tuple[pa.DataType, list[Any]]:
    kind = column.type
    if pat.is_struct(kind):
        return _store_struct(column, values, style)
    if pat.is_map(kind):
        (key, keys), (item, items) = (
            _store(part, [pair[side] for value in values if value for pair in value], style)
            for side, part in enumerate(column.parts)
        )
        pairs = list(zip(keys, items, strict=True))
        return pa.map_(key, item), _regrouped(values, pairs)
    if pat.is_list(kind):
        entries = [entry for value in values if value for entry in value]
        element, stored = _store(column.parts[0], entries, style)
        return pa.list_(element), _regrouped(values, stored)
    return _narrow(kind, values) if style.narrows else (kind, values)


def _store_struct(column: Column, values: list[Any], style: Style) -> tuple[pa.DataType, list[Any]]:
    parts = [
        (part, [None if value is None else value[place] for value in values])
        for place, part in enumerate(column.parts)
    ]
    if style.leaves_out:
        parts = [pair for pair in parts if any(v is not None for v in pair[1])] or parts[:1]
    if style.reorders:
        style.rng.shuffle(parts)
    members = [_optional(store_column(part, inner, style)) for part, inner in parts]
    rows = zip(*(inner for _, inner in members), strict=True)
    stored = [None if v is None else row for v, row in zip(values, rows, strict=True)]
    return pa.struct([member for member, _ in members]), stored


def _optional(stored: Stored) -> Stored:
    """Keep a member nullable: its parent may be null where it is not."""
    return stored[0].with_nullable(nullable=True), stored[1]


def _regrouped(values: list[Any], entries: list[Any]) -> list[Any]:
    rest = iter(entries)
    return [None if value is None else tuple(next(rest) for _ in value) for value in values]


def _narrow(kind: pa.DataType, values: list[Any]) -> tuple[pa.DataType, list[Any]]:
    present = [value for value in values if value is not None]
    if kind in _INTEGERS:
        fitting = (k for k in _INTEGERS if all(_fits(value, k) for value in present))
        return min(next(fitting), kind, key=lambda k: k.bit_width), values
    if kind == pa.float64() and all(_is_single(bits) for bits in present):
        return pa.float32(), [None if bits is None else _to_single(bits) for bits in values]
    if pat.is_timestamp(kind) and all(value % 1000 == 0 for value in present):
        return pa.timestamp("ms", tz=kind.tz), values
    if pat.is_decimal(kind):
        digits = max((len(value.as_tuple().digits) for value in present), default=1)
        return pa.decimal128(max(digits, kind.scale, 1), kind.scale), values
    return kind, values


def _fits(value: int, kind: pa.DataType) -> bool:
    return -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)


def _is_single(bits: int) -> bool:
    number = np.array([bits], np.int64).view(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        single = number.astype(np.float32)
    return bool(single.astype(np.float64).view(np.int64)[0] == bits)


def _to_single(bits: int) -> int:
    number = np.array([bits], np.int64).view(np.float64)
    return int(number.astype(np.float32).view(np.int32)[0])
