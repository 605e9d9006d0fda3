"""Tables of hundreds of megabytes, made by DuckDB in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb

from lakehand.formats.delta.protocol.arrow_types import from_arrow
from support.hand_written_logs import add, metadata, protocol
from support.small_tables import commit_by_hand

if TYPE_CHECKING:
    from pathlib import Path

#: About 80 bytes a row in a file: numbers, decimals, dates and words, hard to compress.
LINEITEM = """
    i // 4 AS orderkey,
    (hash(i) % 200000)::BIGINT AS partkey,
    (hash(i + 1) % 10000)::BIGINT AS suppkey,
    (i % 7)::INTEGER AS linenumber,
    (hash(i + 2) % 5000 / 100)::DECIMAL(15, 2) AS quantity,
    (hash(i + 3) % 9000000 / 100)::DECIMAL(15, 2) AS price,
    (hash(i + 4) % 10 / 100)::DECIMAL(15, 2) AS discount,
    ['A', 'N', 'R'][1 + (hash(i + 5) % 3)::BIGINT] AS flag,
    DATE '1992-01-01' + (hash(i + 6) % 2500)::INTEGER AS shipdate,
    ['AIR', 'RAIL', 'SHIP', 'TRUCK'][1 + (hash(i + 7) % 4)::BIGINT] AS mode,
    md5(i::VARCHAR) || md5((-i)::VARCHAR) AS comment
"""
#: About 9 KB a row: long texts, a few of 128 KB, and nested columns.
WIDE = """
    i AS id,
    array_to_string(
        [md5((1000 * i + j)::VARCHAR) FOR j IN range(if(i % 97 = 0, 4000, 250))], ''
    ) AS body,
    {'kind': i % 5, 'note': {'text': repeat(md5(i::VARCHAR), 3), 'score': i / 7.0}} AS detail,
    [{'k': md5((i + j)::VARCHAR), 'v': i * j} FOR j IN range(6)] AS tags,
    MAP([md5(i::VARCHAR), 'b'], [i, i + 1]) AS attributes
"""


def make_large(path: Path, columns: str, *, files: int, rows_a_file: int) -> Path:
    """Write a table of so many files; `columns` are made of the number of the row, `i`."""
    (path / "_delta_log").mkdir(parents=True)
    actions = []
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        for number in range(files):
            name = f"part-{number:04}.parquet"
            rows = f"range({number * rows_a_file}, {(number + 1) * rows_a_file}) AS r(i)"
            target = f"'{path / name}' (FORMAT parquet, COMPRESSION snappy)"
            connection.execute(f"COPY (SELECT {columns} FROM {rows}) TO {target}")
            actions.append(add(name, rows=rows_a_file, size=(path / name).stat().st_size))
        schema = connection.sql(f"SELECT {columns} FROM range(1) AS r(i)").to_arrow_table().schema
    fields = json.loads(from_arrow(schema).to_json())["fields"]
    commit_by_hand(path, protocol(), metadata(*fields), *actions)
    return path
