"""Rows with edges in every column, and expressions in Spark's SQL over them, all by one seed."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("number", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("ratio", pa.float64()),
        ("money", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("word", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("nested", pa.struct([("n", pa.int32()), ("label", pa.string())])),
    ]
)

#: What random expressions do not hold: conditions as users write them.
WRITTEN = (
    "name RLIKE '^a'", "name RLIKE 'b$'", "word RLIKE '^[a-c]+$'", r"name RLIKE '\\\\s'",
    r"word RLIKE 'x.y|^\\\\w{2}$'", "name ILIKE 'A%'", "name NOT ILIKE '%B'", "upper(name)",
    "lower(name)", "extract(dow FROM day)", "extract(week FROM day)", "extract(doy FROM at)",
    "locate('b', word)", "instr(name, 'a')", "floor(number / 4)", "ceil(number / 4)",
    "floor(number)", "day - INTERVAL 1 MONTH", "day + INTERVAL 2 DAYS", "at - INTERVAL 36 HOURS",
    "wall + INTERVAL 1 YEAR", "number = '3'", "ratio = '1.5'", "flag = 'true'", "single = 0.1",
    "single > 0.1", "ratio = 'NaN'", "number IN ('1', '-2')", "day = '2024-02-29'", "number = 3.0",
    "tiny BETWEEN 0 AND 100", "at >= '2024-02-29'", "date_sub(day, 7)", "dayofweek(day) = 1",
)  # fmt: skip
_TEXTS = ["", " ", "a", "A", "ab", "abc", "  pad ", "100%", "a_b", "it's", "Zürich", "日本", "a\tb"]
_DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(2026, 11, 15)]
_FLOATS = [0.0, -0.0, 0.1, 1.5, -2.25, 1e10, float("nan"), float("inf"), float("-inf")]


def rows(count: int, *, seed: int) -> pa.Table:
    """Return rows whose columns are null in one of five."""
    chance = random.Random(seed)

    def maybe(value: object) -> object:
        return None if chance.random() < 0.2 else value

    def moment() -> dt.datetime:
        start = dt.datetime.combine(chance.choice(_DAYS), dt.time())
        return start + dt.timedelta(microseconds=chance.randrange(86_400_000_000))

    made = [
        {
            "id": number,
            "tiny": maybe(chance.choice([-100, -1, 0, 1, 100, 127])),
            "small": maybe(chance.randint(-300, 300)),
            "number": maybe(chance.randint(-50, 50)),
            "large": maybe(chance.choice([0, 1, -1, 2**40, -(2**40), chance.randint(-9, 9)])),
            "single": maybe(chance.choice(_FLOATS)),
            "ratio": maybe(chance.choice(_FLOATS)),
            "money": maybe(Decimal(chance.randint(-20_000, 20_000)).scaleb(-2)),
            "name": maybe(chance.choice(_TEXTS)),
            "word": maybe(chance.choice(["a", "ab", "abc", "b", "Abc", "x y"])),
            "day": maybe(chance.choice(_DAYS)),
            "at": maybe(moment().replace(tzinfo=dt.UTC)),
            "wall": maybe(moment()),
            "flag": maybe(chance.random() < 0.5),
            "nested": maybe({"n": maybe(chance.randint(0, 9)), "label": maybe("l")}),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


class Expressions:
    """Makes expressions of a wanted kind, of bounded depth."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def make(self, kind: str, depth: int = 2) -> str:
        choices: list[str] = getattr(self, f"_{kind}")(depth)
        return self._chance.choice(choices)

    def _boolean(self, depth: int) -> list[str]:
        leaves = ["flag", "nested.label IS NULL", "name IS NOT NULL", "TRUE"]
        if depth == 0:
            return leaves
        kinds = ("integer", "double", "text", "date", "decimal", "time")
        kind = self._chance.choice(kinds)
        one, other, third = (self.make(kind, depth - 1) for _ in range(3))
        yes, no = self.make("boolean", depth - 1), self.make("boolean", depth - 1)
        word = self._chance.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        text = self.make("text", depth - 1)
        pattern = self._chance.choice(["a%", "%b", "_", "%\\\\_%", "100\\\\%", "a__", "%"])
        return [
            *leaves,
            f"({one} {word} {other})",
            f"({one} {word} {other})",
            f"({yes} AND {no})",
            f"({yes} OR {no})",
            f"(NOT {yes})",
            f"({one} BETWEEN {other} AND {third})",
            f"({one} IN ({other}, {third}))",
            f"({one} NOT IN ({other}, NULL))",
            f"({text} LIKE '{pattern}')",
            f"({text} NOT LIKE '{pattern}')",
            f"startswith({text}, {self.make('text', 0)})",
            f"contains({text}, {self.make('text', 0)})",
            f"endswith({text}, {self.make('text', 0)})",
            f"({yes} IS TRUE)",
            "isnan(ratio)",
            f"isnull({one})",
        ]

    def _integer(self, depth: int) -> list[str]:
        leaves = ["tiny", "small", "number", "nested.n", "3", "large", "0"]
        if depth == 0:
            return leaves
        one, other = self.make("integer", depth - 1), self.make("integer", depth - 1)
        date = self.make("date", depth - 1)
        part = self._chance.choice(
            ["year", "month", "day", "quarter", "dayofweek", "dayofyear", "weekofyear"]
        )
        return [
            *leaves,
            f"(CAST({one} AS BIGINT) + {other})",
            f"(CAST({one} AS BIGINT) - {other})",
            "(small * number)",
            "(-number)",
            f"({one} % 7)",
            f"({one} div 4)",
            "abs(small)",
            f"length({self.make('text', depth - 1)})",
            f"{part}({date})",
            f"{self._chance.choice(['hour', 'minute', 'second'])}({self.make('time', 0)})",
            f"datediff({date}, {self.make('date', 0)})",
            f"coalesce({one}, {other})",
            f"if({self.make('boolean', depth - 1)}, {one}, {other})",
            f"greatest({one}, {other})",
            f"least({one}, {other})",
            f"nullif({one}, {other})",
            f"CASE WHEN {self.make('boolean', depth - 1)} THEN {one} END",
            f"CASE {one} WHEN {other} THEN 1 ELSE 2 END",
        ]

    def _double(self, depth: int) -> list[str]:
        leaves = ["single", "ratio", "1.5D", "0.1D"]
        if depth == 0:
            return leaves
        one, other = self.make("double", depth - 1), self.make("double", depth - 1)
        return [
            *leaves,
            f"({self.make('integer', depth - 1)} / 4)",
            f"({one} + 1)",
            f"({one} * 0.5D)",
            f"coalesce({one}, {other})",
            f"greatest({one}, {other})",
            "CAST(number AS DOUBLE)",
        ]

    def _decimal(self, depth: int) -> list[str]:
        leaves = ["money", "1.25", "100.5"]
        if depth == 0:
            return leaves
        return [
            *leaves,
            "(money + number)",
            "(money * 3)",
            "(money - 0.005)",
            f"coalesce(money, {self.make('integer', 0)})",
            "CAST(number AS DECIMAL(12, 2))",
        ]

    def _text(self, depth: int) -> list[str]:
        leaves = ["name", "word", "nested.label", "'ab'", "' '"]
        if depth == 0:
            return leaves
        one, other = self.make("text", depth - 1), self.make("text", depth - 1)
        return [
            *leaves,
            f"concat({one}, {other})",
            f"({one} || '-' || {other})",
            f"substring({one}, 2, 3)",
            f"left({one}, 2)",
            f"trim({one})",
            f"ltrim({one})",
            f"rtrim({one})",
            "upper(word)",
            "lower(word)",
            "CAST(large AS STRING)",
            "CAST(day AS STRING)",
            "date_format(at, 'yyyy-MM-dd-HH')",
            f"coalesce({one}, {other})",
        ]

    def _date(self, depth: int) -> list[str]:
        leaves = ["day", "DATE'2026-11-15'", "CAST(at AS DATE)"]
        if depth == 0:
            return leaves
        unit = self._chance.choice(["YEAR", "MM", "QUARTER", "WEEK"])
        return [
            *leaves,
            f"date_add({self.make('date', 0)}, 40)",
            f"date_sub({self.make('date', 0)}, 1)",
            f"trunc({self.make('date', 0)}, '{unit}')",
            "to_date(at)",
            "CAST(wall AS DATE)",
        ]

    def _time(self, depth: int) -> list[str]:
        leaves = ["at", "TIMESTAMP'2024-02-29 12:30:00'"]
        if depth == 0:
            return leaves
        unit = self._chance.choice(["YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE"])
        return [*leaves, f"date_trunc('{unit}', at)", "CAST(day AS TIMESTAMP)"]
