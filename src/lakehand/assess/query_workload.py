"""Predicates of a query workload on a table's columns, with weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakehand.errors import LakehandError
from lakehand.expressions.literals import literal
from lakehand.expressions.name_resolution import SparkDialect
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.expressions.pruning import may_match
from lakehand.model.snapshot import quoted_column
from lakehand.planning.probes import ProbeSet, draw_probes, skip_rate
from lakehand.planning.quantiles import STEPS, quantiles_of_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What one query asks of the table; either may be missing."""

    #: Predicates on columns of the table, in SQL.
    predicate: str | None
    #: Columns that are compared with columns of other tables.
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The queries of a file that concern a table, and how often each of them occurs."""

    queries: dict[Query, int]
    #: Statements in the file.
    statement_count: int
    #: Number of statements that were not used, by reason.
    unused: dict[str, int] = field(default_factory=dict)


def read_queries(text: str, *, table_name: str, schema: pa.Schema) -> Workload:
    """Parse statements in Spark SQL, separated by semicolons or one per line."""
    queries: Counter[Query] = Counter()
    unused: Counter[str] = Counter()
    statements = [part for part in _split(text) if part.strip()]
    for statement in statements:
        found = _read(statement, table_name, schema)
        if isinstance(found, str):
            unused[found] += 1
        else:
            queries.update(found)
    return Workload(
        queries=dict(queries.most_common()),
        statement_count=len(statements),
        unused=dict(unused.most_common()),
    )


def _split(text: str) -> list[str]:
    try:
        tokens = SparkDialect().tokenize(text)
    except SqlglotError:
        return text.splitlines()
    ends = [token.start for token in tokens if token.token_type.name == "SEMICOLON"]
    if not ends:
        return _lines(text)
    starts = [0, *(end + 1 for end in ends)]
    parts = (text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True))
    return [part for part in parts if _says_something(part)]


def _lines(text: str) -> list[str]:
    """Treat every line as a statement, unless the lines are one statement together."""
    lines = [line for line in text.splitlines() if _says_something(line)]
    return lines if all(_parsed(line) is not None for line in lines) else [text]


def _says_something(text: str) -> bool:
    return bool(SparkDialect().tokenize(text))


def _parsed(statement: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(statement, dialect=SparkDialect)
    except (SqlglotError, RecursionError):
        return None


def _read(statement: str, table_name: str, schema: pa.Schema) -> list[Query] | str:
    """Return the query of a statement, or why it has none."""
    tree = _parsed(statement)
    if tree is None:
        return "not understood"
    blocks = [block for block in _blocks(tree) if block.own_names(table_name, tree)]
    if not blocks:
        return "about other tables"
    asked = [_query(block, block.own_names(table_name, tree), schema) for block in blocks]
    useful = [query for query in asked if query.predicate or query.joined]
    return useful or "without a condition on a column"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """A part of a statement that names tables and filters their rows."""

    tables: list[exp.Table]
    conditions: list[exp.Expr]

    def own_names(self, table_name: str, tree: exp.Expr) -> set[str]:
        """Return the names by which the block refers to the table."""
        defined = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
        stored = [table for table in self.tables if table.name.lower() not in defined]
        own = [table for table in stored if _is_named(table, table_name)]
        if not own and len({table.name.lower() for table in tree.find_all(exp.Table)}) == 1:
            own = stored  # The only table, under any catalog name.
        return {table.alias_or_name.lower() for table in own}


def _is_named(table: exp.Table, table_name: str) -> bool:
    last = table.name.rstrip("/").rpartition("/")[2]
    return last.lower() == table_name.lower()


def _blocks(tree: exp.Expr) -> Iterator[_Block]:
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        source = select.args.get("from_")
        sources = [*([source.this] if source else []), *(join.this for join in joins)]
        # Rows that fail the condition of an outer join are kept.
        inner = [join.args.get("on") for join in joins if not join.side]
        yield _block(sources, [select.args.get("where"), *inner])
    for change in tree.find_all(exp.Delete, exp.Update):
        yield _block([change.this], [change.args.get("where")])


def _block(sources: Iterable[exp.Expr], conditions: Iterable[exp.Expr | None]) -> _Block:
    wheres = (each.this if isinstance(each, exp.Where) else each for each in conditions if each)
    return _Block(
        tables=[source for source in sources if isinstance(source, exp.Table)],
        conditions=[part for where in wheres for part in _conjuncts(where)],
    )


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    match condition:
        case exp.And():
            yield from _conjuncts(condition.left)
            yield from _conjuncts(condition.right)
        case exp.Paren():
            yield from _conjuncts(condition.this)
        case _:
            yield condition


def _query(block: _Block, own: set[str], schema: pa.Schema) -> Query:
    known = {name.lower() for name in schema.names}
    single = len(block.tables) == 1
    sql_predicates: list[str] = []
    joined: list[str] = []
    for condition in block.conditions:
        columns = list(condition.find_all(exp.Column))
        mine = [column for column in columns if _is_own(column, own, known, single=single)]
        if len(mine) == len(columns):
            sql_predicates.extend(_understood(condition, own, schema))
        elif isinstance(condition, exp.EQ) and {condition.left, condition.right} & set(mine):
            joined.extend(_own_path(column, own).sql(SparkDialect) for column in mine)
    predicate = " AND ".join(f"({text})" for text in sorted(set(sql_predicates)))
    return Query(predicate=predicate or None, joined=tuple(dict.fromkeys(joined)))


def _is_own(column: exp.Column, own: set[str], known: set[str], *, single: bool) -> bool:
    first = column.parts[0].name.lower()
    if len(column.parts) > 1 and first in own:
        return column.parts[1].name.lower() in known
    return first in known and (single or len(column.parts) == 1)


def _own_path(column: exp.Column, own: set[str]) -> exp.Expr:
    """Return the column without its table name."""
    parts = list(column.parts)
    if len(parts) > 1 and parts[0].name.lower() in own:
        parts = parts[1:]
    first = exp.column(parts[0].copy())
    return exp.Dot.build([first, *(part.copy() for part in parts[1:])]) if parts[1:] else first


def _understood(condition: exp.Expr, own: set[str], schema: pa.Schema) -> list[str]:
    """Return the condition alone, if statistics can decide it: not possible for some functions."""
    alone = condition.transform(
        lambda node: _own_path(node, own) if isinstance(node, exp.Column) else node
    )
    text = alone.sql(SparkDialect)
    return [text] if _predicate(text, schema) else []


def _predicate(text: str, schema: pa.Schema) -> Predicate | None:
    try:
        return parse_predicate(text, schema)
    except LakehandError:
        return None


#: Of more distinct queries, the rarest are left out.
_MAX_QUERIES = 100
#: Values that represent those on the other side of a join, as fractions of all rows.
_JOINED_PARTS = (0.15, 0.5, 0.85)


def asked_columns(workload: Workload, schema: pa.Schema) -> list[str]:
    """Return the columns that queries filter or join by, those of frequent queries first."""
    found = []
    for query in list(workload.queries)[:_MAX_QUERIES]:
        if query.predicate:
            references = parse_predicate(query.predicate, schema).references
            found += [quoted_column(path) for path in references]
        found += query.joined
    return list(dict.fromkeys(found))


class Questions(Protocol):
    """The queries that layouts are evaluated with."""

    @property
    def count(self) -> int: ...

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        """Return the fraction of files that is skipped, for each of several layouts."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FixedQuestions:
    """The same probe queries for every table, drawn from the values of its columns."""

    probes: ProbeSet

    @classmethod
    def over(cls, columns: Mapping[str, pa.Array]) -> FixedQuestions:
        found = {name: quantiles_of_values(values) for name, values in columns.items()}
        return cls(probes=draw_probes({name: each for name, each in found.items() if len(each)}))

    @property
    def count(self) -> int:
        return len(self.probes.probes)

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        return [skip_rate(files, self.probes).files for files in layouts]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AskedQueries:
    """The predicates of queries, weighted by their frequency."""

    predicates: tuple[Predicate, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(
        cls, workload: Workload, schema: pa.Schema, values: Mapping[str, pa.Array]
    ) -> AskedQueries:
        """Return the queries of `workload`; `values` are those of columns that it joins by."""
        frequent = list(workload.queries.items())[:_MAX_QUERIES]
        asked = [
            (parse_predicate(text, schema), count / len(sql_predicates))
            for query, count in frequent
            for sql_predicates in [list(_sql_predicates(query, values))]
            for text in sql_predicates
        ]
        return cls(
            predicates=tuple(predicate for predicate, _ in asked),
            weights=tuple(weight for _, weight in asked),
        )

    @property
    def count(self) -> int:
        return len(self.predicates)

    @property
    def columns(self) -> dict[str, float]:
        """The weight of each column: those of a query share its weight."""
        found: dict[str, float] = {}
        for predicate, weight in zip(self.predicates, self.weights, strict=True):
            for path in predicate.references:
                name = quoted_column(path)
                found[name] = found.get(name, 0.0) + weight
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        # All layouts at once: compiling a predicate costs more than evaluating it.
        everything = pa.concat_tables(layouts)
        ends = np.cumsum([files.num_rows for files in layouts])
        rates = np.zeros(len(layouts))
        for predicate, weight in zip(self.predicates, self.weights, strict=True):
            is_read = np.from_dlpack(may_match(predicate, everything).cast(pa.uint8()))
            parts = np.split(is_read, ends[:-1])
            rates += [weight * (1 - part.mean()) if len(part) else 0.0 for part in parts]
        total = sum(self.weights)
        return [float(rate / total) for rate in rates] if total else [0.0] * len(layouts)


def _sql_predicates(query: Query, values: Mapping[str, pa.Array]) -> Iterator[str]:
    """Yield the predicates of a query; a join has one for each of several values."""
    own = [query.predicate] if query.predicate else []
    joined = [column for column in query.joined if column in values]
    if not joined:
        yield from own
        return
    for part in _JOINED_PARTS:
        points = (f"{name} = {_value_at(values[name], part)}" for name in joined)
        yield " AND ".join([*own, *points])


def _value_at(values: pa.Array, part: float) -> str:
    quantiles = quantiles_of_values(values)
    return literal(quantiles[round(part * STEPS)].as_py() if len(quantiles) else None)
