"""The SQL dialect of expressions, and the resolution of column names."""

from __future__ import annotations

from typing import TypeGuard

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from lakehand.errors import PredicateError, UnknownColumnError
from lakehand.model.snapshot import COLLATED

_QUOTES_HINT = "strings are quoted by single quotes, as in region = 'eu'"


class SparkDialect(Spark):
    """Spark SQL, with '' inside a string as one quote, as in Spark 4 and standard SQL."""

    class Tokenizer(Spark.Tokenizer):
        """Accepts both ways to quote a quote in a string."""

        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012  the base class requires a list


def reference_name(index: int) -> str:
    """Return the column name of a reference in the evaluation."""
    return f"v{index}"


class Resolver:
    """Replaces names by references and records what each represents."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.paths: dict[tuple[str, ...], pa.DataType] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._root = pa.struct(list(schema))
        #: Fields by their lower-case names, by the path of the struct that they are in.
        self._fields: dict[tuple[str, ...], dict[str, list[pa.Field]]] = {}

    def resolve(self, node: exp.Expr) -> exp.Expr:
        if not is_name(node):
            return node
        path, type_ = self._find([part.name for part in node.parts])
        self.paths.setdefault(path, type_)
        return exp.column(reference_name(self._numbers.setdefault(path, len(self._numbers))))

    def _find(self, parts: list[str]) -> tuple[tuple[str, ...], pa.DataType]:
        path: tuple[str, ...] = ()
        found = pa.field("", self._root)
        for part in parts:
            member = self._member(part, path, found.type)
            if member is None:
                names = self._names_beside(path, found.type)
                raise UnknownColumnError(".".join(parts), names, hint=_QUOTES_HINT)
            path, found = (*path, member.name), member
        if COLLATED in (found.metadata or {}):
            raise PredicateError(
                f"column {'.'.join(parts)} cannot be used in a condition, because it has a"
                " collation",
                field=".".join(parts),
                hint="use an engine that supports the collation",
            )
        return path, found.type

    def _member(self, name: str, path: tuple[str, ...], struct: pa.DataType) -> pa.Field | None:
        """Return a field of the struct at a path; the columns are those at the empty one."""
        if path not in self._fields:
            fields = self._fields[path] = {}
            for field in struct if pa.types.is_struct(struct) else ():
                fields.setdefault(field.name.lower(), []).append(field)
        same = self._fields[path].get(name.lower(), [])
        exact = [field for field in same if field.name == name]
        if len(same) > 1 and not exact:
            names = ", ".join(field.name for field in same)
            message = f"{name!r} is ambiguous: it may be {names}"
            raise PredicateError(message, field=name, hint="use the exact name of the column")
        return next(iter(exact or same), None)

    def _names_beside(self, path: tuple[str, ...], type_: pa.DataType) -> list[str]:
        if not pa.types.is_struct(type_):
            return list(self.schema.names)
        return [".".join((*path, field.name)) for field in type_]


def is_name(node: exp.Expr) -> TypeGuard[exp.Column | exp.Dot]:
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        node = node.this
    return isinstance(node, exp.Column)
