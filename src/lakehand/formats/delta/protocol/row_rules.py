"""What a table asks of new rows: constraints, invariants, generated columns, defaults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError, RefusedError
from lakehand.formats.delta.protocol.members import load_json
from lakehand.formats.delta.protocol.schema import StructType, is_collated
from lakehand.model.head import RowRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.delta.protocol.actions import Metadata

__all__ = ["constraints_of", "row_rules"]

_CONSTRAINT_PREFIX = "delta.constraints."
_INVARIANT = "delta.invariants"
_GENERATED = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_BOUNDED_TEXT = re.compile(r"(?:var)?char\(\s*(\d+)\s*\)", re.IGNORECASE)


def row_rules(metadata: Metadata, schema: StructType, *, table: str) -> RowRules:
    """Return all rules; RefusedError if they would have to be computed by collations."""
    rules = RowRules(
        constraints={
            **constraints_of(metadata),
            **dict(_invariants(schema, ())),
            **dict(_bounded_texts(schema)),
        },
        generated=_by_column(schema, _GENERATED),
        defaults=_by_column(schema, _DEFAULT),
    )
    if (rules.constraints or rules.generated) and any(map(is_collated, schema.fields)):
        raise RefusedError(
            f"no rows can be added to {table}: its rules are about texts that compare by a"
            " collation",
            table=table,
            operation="append",
            feature="collations",
            hint="nothing was written; write with an engine that knows the collation",
        )
    return rules


def constraints_of(metadata: Metadata) -> dict[str, str]:
    """Return the CHECK constraints by name."""
    return {
        name.removeprefix(_CONSTRAINT_PREFIX): text
        for name, text in sorted(metadata.configuration.items())
        if name.startswith(_CONSTRAINT_PREFIX)
    }


def _by_column(schema: StructType, key: str) -> dict[str, str]:
    return {
        column.name: str(column.metadata[key]) for column in schema.fields if key in column.metadata
    }


def _invariants(struct: StructType, outer: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for column in struct.fields:
        path = (*outer, column.name)
        if _INVARIANT in column.metadata:
            name = ".".join(path)
            yield f"invariant of {name}", _expression(column.metadata[_INVARIANT], name)
        if isinstance(column.type, StructType):
            yield from _invariants(column.type, path)


def _expression(text: object, column: str) -> str:
    try:
        return str(load_json(str(text))["expression"]["expression"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"the invariant of column {column!r} cannot be read: {text!r}"
        raise CorruptLogError(message) from error


def _bounded_texts(schema: StructType) -> Iterator[tuple[str, str]]:
    """Yield the lengths of texts that Spark declares with a length."""
    for column in schema.fields:
        declared = str(column.metadata.get(_TEXT_TYPE, ""))
        match = _BOUNDED_TEXT.fullmatch(declared)
        if match:
            name = "`" + column.name.replace("`", "``") + "`"
            yield f"{declared} of {column.name}", f"{name} IS NULL OR length({name}) <= {match[1]}"
