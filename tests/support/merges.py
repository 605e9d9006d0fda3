"""Random merges: as lakehand, delta-spark and delta-rs are told them, and a model in Python."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakehand.model.reports import MergeReport

    Row = dict[str, Any]

TARGET = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("n", pa.int32()), ("note", pa.string())]
)
SOURCE = pa.schema([*TARGET, ("kind", pa.string())])
COLUMNS = "id BIGINT, part STRING, n INT, note STRING"


class MultipleMatches(Exception):  # noqa: N818  what the model answers
    """Several rows of the source would change one row."""


def _less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


#: A join condition, and what it means.
ON: list[tuple[str, Callable[[Row, Row], bool]]] = [
    ("t.id = s.id", lambda t, s: t["id"] is not None and t["id"] == s["id"]),
    ("s.id <=> t.id", lambda t, s: t["id"] == s["id"]),
    (
        "t.id = s.id AND t.part = 'a'",
        lambda t, s: t["id"] is not None and t["id"] == s["id"] and t["part"] == "a",
    ),
    (
        "t.id = s.id AND s.n > 1",
        lambda t, s: t["id"] is not None and t["id"] == s["id"] and _less(1, s["n"]),
    ),
    (
        "t.id = s.id AND t.n < s.n",
        lambda t, s: t["id"] is not None and t["id"] == s["id"] and _less(t["n"], s["n"]),
    ),
    (
        "t.id + 1 = s.id OR (t.part = s.part AND t.n = s.n)",
        lambda t, s: (
            (t["id"] is not None and t["id"] + 1 == s["id"])
            or (
                t["part"] is not None
                and t["part"] == s["part"]
                and t["n"] is not None
                and t["n"] == s["n"]
            )
        ),
    ),
    ("false", lambda t, s: False),
]
PAIR_CONDITIONS = [
    (None, lambda t, s: True),
    ("s.kind = 'd'", lambda t, s: s["kind"] == "d"),
    ("t.n > 1", lambda t, s: _less(1, t["n"])),
    ("s.n IS NULL OR t.n < s.n", lambda t, s: s["n"] is None or _less(t["n"], s["n"])),
]
PAIR_UPDATES = [
    ({"n": "s.n"}, lambda t, s: {**t, "n": s["n"]}),
    (
        {"n": "t.n + s.n", "note": "concat('u-', s.kind)"},
        lambda t, s: {**t, "n": _added(t["n"], s["n"]), "note": f"u-{s['kind']}"},
    ),
    ({"t.part": "s.kind"}, lambda t, s: {**t, "part": s["kind"]}),
    (
        {"id": "s.id + 100", "note": "NULL"},
        lambda t, s: {**t, "id": _added(s["id"], 100), "note": None},
    ),
    (None, lambda t, s: {name: s[name] for name in TARGET.names}),
]
SOURCE_CONDITIONS = [
    (None, lambda s: True),
    ("s.n > 0", lambda s: _less(0, s["n"])),
    ("s.kind = 'i' AND s.id IS NOT NULL", lambda s: s["kind"] == "i" and s["id"] is not None),
]
INSERTS = [
    (None, lambda s: {name: s[name] for name in TARGET.names}),
    (
        {"id": "s.id", "n": "s.n * 2"},
        lambda s: {"id": s["id"], "part": None, "n": s["n"] and s["n"] * 2, "note": None},
    ),
]
TARGET_CONDITIONS = [
    (None, lambda t: True),
    ("t.n > 2", lambda t: _less(2, t["n"])),
    ("t.part = 'b'", lambda t: t["part"] == "b"),
]
TARGET_UPDATES = [
    ({"note": "'gone'"}, lambda t: {**t, "note": "gone"}),
    ({"n": "t.n + 1"}, lambda t: {**t, "n": _added(t["n"], 1)}),
]


@dataclass(frozen=True, kw_only=True)
class Clause:
    kind: str
    action: str
    condition: str | None
    holds: Callable[..., bool]
    values: dict[str, str] | None = None
    make: Callable[..., Row] | None = None


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A merge that every engine can be told."""

    on: str
    matches: Callable[[Row, Row], bool]
    clauses: list[Clause] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Clause]:
        return [clause for clause in self.clauses if clause.kind == kind]

    def run(self, path: Path | str, source: Sequence[Row], **options: Any) -> MergeReport:
        """Let lakehand merge."""
        table = lakehand.open_table(path, engine="local", takeover_after="0s")
        merge = table.merge(pa.Table.from_pylist(list(source), SOURCE), on=self.on, **options)
        for clause in self.clauses:
            name = f"when_{clause.kind}_{clause.action}"
            if clause.action == "delete":
                merge = getattr(merge, name)(condition=clause.condition)
            elif clause.values is None:
                merge = getattr(merge, f"{name}_all")(condition=clause.condition)
            else:
                merge = getattr(merge, name)(clause.values, condition=clause.condition)
        return merge.execute()

    def sql(self, path: Path | str, source: str) -> str:
        """Return the statement for delta-spark; `source` is a query or a table."""
        lines = [f"MERGE INTO delta.`{path}` AS t USING {source} AS s ON {self.on}"]
        for clause in self.clauses:
            words = f"WHEN {clause.kind.upper().replace('_', ' ')}"
            condition = f" AND {clause.condition}" if clause.condition else ""
            lines.append(f"{words}{condition} THEN {_action(clause)}")
        return "\n".join(lines)

    def model(self, target: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        """Return what the rows must be afterwards; MultipleMatches if that is not defined."""
        left, matched = [], set()
        for row in target:
            partners = [n for n, s in enumerate(source) if self.matches(row, s)]
            matched.update(partners)
            left += self._changed(row, [source[n] for n in partners])
        for number, row in enumerate(source):
            clause = _first(self.of_kind("not_matched"), row) if number not in matched else None
            if clause is not None:
                left.append(clause.make(row))
        return left

    def _changed(self, row: Row, partners: list[Row]) -> Iterator[Row]:
        if not partners:
            clause = _first(self.of_kind("not_matched_by_source"), row)
            return _result(clause, row)
        acting = [(c, s) for s in partners if (c := _first(self.of_kind("matched"), row, s))]
        if len(acting) > 1 and not self.deletes_all:
            raise MultipleMatches
        return _result(*([acting[0][0], row, acting[0][1]] if acting else [None, row]))

    @property
    def deletes_all(self) -> bool:
        return [(c.action, c.condition) for c in self.of_kind("matched")] == [("delete", None)]


def _first(clauses: list[Clause], *rows: Row) -> Clause | None:
    return next((clause for clause in clauses if clause.holds(*rows)), None)


def _result(clause: Clause | None, *rows: Row) -> list[Row]:
    if clause is None:
        return [rows[0]]
    return [] if clause.action == "delete" else [clause.make(*rows)]


def _action(clause: Clause) -> str:
    if clause.action == "delete":
        return "DELETE"
    if clause.action == "update":
        sets = (f"{name} = {value}" for name, value in (clause.values or {}).items())
        return f"UPDATE SET {', '.join(sets) or '*'}"
    if clause.values is None:
        return "INSERT *"
    return f"INSERT ({', '.join(clause.values)}) VALUES ({', '.join(clause.values.values())})"


def random_merge(chance: random.Random) -> Merge:
    """Return a merge with one to five clauses."""
    on, matches = chance.choice(ON)
    clauses: list[Clause] = []
    kinds = {
        "matched": (PAIR_CONDITIONS, PAIR_UPDATES, "update"),
        "not_matched": (SOURCE_CONDITIONS, INSERTS, "insert"),
        "not_matched_by_source": (TARGET_CONDITIONS, TARGET_UPDATES, "update"),
    }
    while not clauses:
        for kind, (conditions, makers, action) in kinds.items():
            for _ in range(chance.choice([0, 1, 1, 2])):
                with contextlib.suppress(StopIteration):
                    _require_reachable(clauses, kind)
                    clauses.append(_random_clause(chance, kind, conditions, makers, action))
    return Merge(on=on, matches=matches, clauses=clauses)


def _require_reachable(clauses: list[Clause], kind: str) -> None:
    if any(clause.kind == kind and clause.condition is None for clause in clauses):
        raise StopIteration


def _random_clause(
    chance: random.Random, kind: str, conditions: list[Any], makers: list[Any], action: str
) -> Clause:
    condition, holds = chance.choice(conditions)
    if action == "update" and chance.random() < 0.3:
        return Clause(kind=kind, action="delete", condition=condition, holds=holds)
    values, make = chance.choice(makers)
    return Clause(
        kind=kind, action=action, condition=condition, holds=holds, values=values, make=make
    )


def random_rows(chance: random.Random, count: int, *, distinct: bool = False) -> list[Row]:
    """Return rows of the target; rows of the source have more, which `as_source` adds."""
    ids: list[int | None] = [*range(12), None]
    chosen = chance.sample(ids, count) if distinct else chance.choices(ids, k=count)
    return [
        {
            "id": number,
            "part": chance.choice(["a", "b", None]),
            "n": chance.choice([None, 0, 1, 2, 3, 4]),
            "note": chance.choice(["x", None]),
        }
        for number in chosen
    ]


def as_source(chance: random.Random, rows: list[Row]) -> list[Row]:
    return [{**row, "kind": chance.choice(["d", "u", "i"])} for row in rows]


def make_target(path: Path | str, files: Sequence[Sequence[Row]], **properties: str) -> None:
    """Make a table with one file, or one per partition, for each of `files`."""
    partition_by = properties.pop("partition_by", "")
    table = lakehand.create_table(
        path, TARGET, properties=properties, partition_by=partition_by.split(), engine="local"
    )
    for rows in files:
        table.append(pa.Table.from_pylist(list(rows), TARGET))


def in_order(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(tuple(row[name] for name in TARGET.names)) for row in rows)


def in_table(path: Path | str) -> list[str]:
    return in_order(lakehand.open_table(path).to_arrow().to_pylist())
