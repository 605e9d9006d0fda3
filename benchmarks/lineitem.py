"""A table like TPC-H's lineitem in many small files, made by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
from deltalake import convert_to_deltalake

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = {
    "l_returnflag": ("A", "N", "R"),
    "l_linestatus": ("F", "O"),
    "l_shipinstruct": ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"),
    "l_shipmode": ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"),
}
_COMMENT = (
    ("furiously", "quickly", "carefully", "slyly", "blithely"),
    ("ironic", "regular", "final", "special", "express", "pending", "bold"),
    ("deposits", "requests", "packages", "accounts", "theodolites", "foxes", "ideas"),
    ("nag", "sleep", "haggle", "wake", "cajole"),
    ("about the", "along the", "above", "after"),
)


def make_lineitem(directory: Path, *, files: int, rows: int) -> Path:
    """Return a table of `rows` in `files`, made once and then kept."""
    table = directory / f"lineitem-{files}-{rows}"
    if (table / "_delta_log").is_dir():
        return table
    table.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE TABLE made AS SELECT {_columns()} FROM range({rows}) AS t(i)")
        for number in range(files):
            start, end = number * rows // files, (number + 1) * rows // files
            connection.execute(
                f"COPY (FROM made WHERE rowid >= {start} AND rowid < {end}) "
                f"TO '{table}/part-{number:05}.parquet' (FORMAT parquet, COMPRESSION snappy)"
            )
    convert_to_deltalake(str(table))
    return table


def _columns() -> str:
    columns = {
        "l_orderkey": "i // 4",
        "l_partkey": f"1 + {_random(1, 200_000)}",
        "l_suppkey": f"1 + {_random(2, 10_000)}",
        "l_linenumber": "(i % 7 + 1)::INTEGER",
        "l_quantity": f"(1 + {_random(3, 50)})::DECIMAL(15, 2)",
        "l_extendedprice": f"(900 + {_random(4, 9_000_000)} / 100)::DECIMAL(15, 2)",
        "l_discount": f"({_random(5, 11)} / 100)::DECIMAL(15, 2)",
        "l_tax": f"({_random(6, 9)} / 100)::DECIMAL(15, 2)",
    }
    columns |= {name: _word(words, 7 + n) for n, (name, words) in enumerate(_WORDS.items())}
    days = ("l_shipdate", "l_commitdate", "l_receiptdate")
    for number, name in enumerate(days):
        columns[name] = f"DATE '1992-01-01' + {_random(11 + number, 2500)}::INTEGER"
    columns["l_comment"] = " || ' ' || ".join(_word(w, 14 + n) for n, w in enumerate(_COMMENT))
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())


def _random(seed: int, below: int) -> str:
    return f"(hash(i * 31 + {seed}) % {below})::BIGINT"


def _word(words: tuple[str, ...], seed: int) -> str:
    return f"{list(words)}[1 + {_random(seed, len(words))}]"
