"""MERGE INTO: a target, a source, a join condition, and WHEN clauses in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.rows.merge_clauses import MergeClause, quoted, unquoted
from lakehand.sql import statements as sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.rows.merge_clauses import ClauseKind
    from lakehand.sql.parser import Parser

_ACTIONS = ("UPDATE", "DELETE", "INSERT")
#: Words after which a condition or an expression is over; WHEN alone may belong to a CASE.
_CLAUSES = (("WHEN", "MATCHED"), ("WHEN", "NOT", "MATCHED"), ("WITH",), ("DRY", "RUN"))
_THEN = tuple(("THEN", action) for action in _ACTIONS)
#: What may follow the name of a table: no alias then.
_AFTER_TABLE = ("USING", "ON")


def read_merge(parser: Parser) -> sql.Merge:
    """Read what follows MERGE; SqlError says where it is wrong."""
    parser.expect("INTO")
    table, target = _aliased(parser)
    parser.expect("USING")
    if parser.lexer.peek().is_symbol("("):
        hint = "write the rows into a table first; Table.merge in Python takes any rows"
        parser.fail("the source of a merge is a table here", parser.lexer.peek(), hint=hint)
    source, source_alias = _aliased(parser)
    parser.expect("ON")
    on = parser.condition(_CLAUSES)
    clauses = []
    while parser.lexer.peek().is_word("WHEN"):
        clauses.append(_clause(parser, target))
    if not clauses:
        parser.fail_expected(["WHEN"], parser.lexer.peek())
    options = parser.options() if parser.take("WITH") else {}
    is_dry_run = parser.take("DRY", "RUN")
    parser.finish(["WHEN", "WITH", "DRY RUN"])
    return sql.Merge(
        table=table,
        target=target,
        source=source,
        source_alias=source_alias,
        on=on,
        clauses=tuple(clauses),
        options={**options, "dry_run": True} if is_dry_run else options,
    )


def _aliased(parser: Parser) -> tuple[sql.TableName, str]:
    """Read a table and the name by which its columns are qualified: its own, unless one follows."""
    table = parser.table()
    token = parser.lexer.peek()
    if parser.take("AS") or not (token.is_word(*_AFTER_TABLE) or token.kind == "end"):
        return table, parser.name("an alias")
    own = table.text.rpartition(".")[2]
    if table.is_path or not own.isidentifier():
        parser.fail("a table that is given by its path needs an alias, as in AS t", token)
    return table, own


def _clause(parser: Parser, target: str) -> MergeClause:
    parser.expect("WHEN")
    is_negated = parser.take("NOT")
    parser.expect("MATCHED")
    kind: ClauseKind = "not_matched" if is_negated else "matched"
    if is_negated and parser.take("BY"):
        by = parser.choose("SOURCE", "TARGET")
        kind = "not_matched_by_source" if by == "SOURCE" else "not_matched"
    condition = parser.condition(_THEN) if parser.take("AND") else None
    parser.expect("THEN")
    if kind == "not_matched":
        parser.expect("INSERT")
        return _insertion(parser, condition)
    if parser.choose("UPDATE", "DELETE") == "DELETE":
        return MergeClause(kind=kind, action="delete", condition=condition)
    return _update(parser, kind, condition, target)


def _update(parser: Parser, kind: ClauseKind, condition: str | None, target: str) -> MergeClause:
    is_set = parser.take("SET")
    here = parser.lexer.peek()
    if parser.take_symbol("*"):
        if kind == "not_matched_by_source":
            parser.fail("there is no row of the source to take all columns from", here)
        return _of_all(parser, kind, "update", condition)
    if not is_set:
        parser.fail_expected(["SET", "*"], here)
    values: dict[str, str] = {}
    while True:
        token = parser.lexer.peek()
        name = _assigned(parser.name_parts("a column"), target)
        parser.expect_symbol("=")
        if name.lower() in map(str.lower, values):
            parser.fail(f"{name} is assigned twice", token)
        values[name] = parser.condition(_CLAUSES, stops=(",",))
        if not parser.take_symbol(","):
            return MergeClause(kind=kind, action="update", condition=condition, values=values)


def _insertion(parser: Parser, condition: str | None) -> MergeClause:
    if parser.take_symbol("*"):
        return _of_all(parser, "not_matched", "insert", condition)
    opening = parser.lexer.peek()
    names = _in_parentheses(parser, lambda: quoted_path(parser.name_parts("a column")))
    parser.expect("VALUES")
    values = _in_parentheses(parser, lambda: parser.condition((), stops=(",", ")")))
    if len(names) != len(values):
        parser.fail(f"INSERT has {len(names)} columns and {len(values)} values", opening)
    if len({name.lower() for name in names}) != len(names):
        parser.fail("INSERT names a column twice", opening)
    return MergeClause(
        kind="not_matched",
        action="insert",
        condition=condition,
        values=dict(zip(names, values, strict=True)),
    )


def _of_all(parser: Parser, kind: ClauseKind, action: str, condition: str | None) -> MergeClause:
    omitted = parser.columns() if parser.take("EXCEPT") else ()
    return MergeClause(
        kind=kind,
        action="update" if action == "update" else "insert",
        condition=condition,
        except_columns=tuple(map(unquoted, omitted)),
    )


def _in_parentheses(parser: Parser, read: Callable[[], str]) -> list[str]:
    parser.expect_symbol("(")
    found = [read()]
    while parser.take_symbol(","):
        found.append(read())
    parser.expect_symbol(")")
    return found


def _assigned(parts: list[str], target: str) -> str:
    is_qualified = len(parts) > 1 and parts[0].lower() == target.lower()
    return quoted_path(parts[1:] if is_qualified else parts)


def quoted_path(parts: list[str]) -> str:
    """Return the name of a column, or of a field in one."""
    return ".".join(map(quoted, parts))
