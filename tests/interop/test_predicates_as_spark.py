"""A predicate keeps the rows that Spark keeps, files and row groups skipped or not."""

from __future__ import annotations

import json

import pytest

import lakehand

ROWS = """
SELECT id,
  CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0D ELSE id / 4 END AS ratio,
  CAST(IF(id % 6 = 0, NULL, id / 8) AS FLOAT) AS single,
  CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN 'it\\'s' WHEN 2 THEN '100%' WHEN 3 THEN 'a_b'
    ELSE concat(repeat('x', 40), id) END AS name,
  CAST(IF(id % 9 = 0, NULL, id) AS DECIMAL(12, 3)) AS money,
  date_add(DATE'2026-01-01', CAST(id AS INT)) AS day,
  timestamp_micros(1767225600000000 + id * 333333) AS at,
  CAST(timestamp_micros(1767225600000000 + id * 333333) AS TIMESTAMP_NTZ) AS local_at,
  IF(id % 3 = 0, NULL, id % 2 = 0) AS even,
  named_struct('inner', named_struct('n', id, 'label', concat('l', id % 4))) AS nested,
  array(id, id + 1) AS items
FROM range(60)
"""

PREDICATES = [
    "id = 7",
    "id <> 7 AND id < 20",
    "id BETWEEN 10 AND 20 OR id IN (1, 2, NULL)",
    "id NOT IN (1, 2, 3)",
    "NOT (id > 5)",
    "ratio > 5",
    "ratio < 5",
    "ratio = 0",
    "ratio >= double('NaN')",
    "ratio = double('NaN') OR ratio IS NULL",
    "NOT (ratio > 3)",
    "ratio BETWEEN 1 AND 3",
    "single = 0.125",
    "single > 3.3",
    "name = 'it\\'s'",
    "name LIKE '100\\%'",
    "name LIKE 'a\\_b'",
    "name LIKE 'xxxx%'",
    "name NOT LIKE 'x%'",
    "name > 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx30'",
    "startswith(name, 'it')",
    "upper(name) = 'A_B'",
    "name IS NULL AND id > 10",
    "name <=> NULL",
    "money = 12",
    "money > 12.345",
    "money <= 7.0005",
    "day = '2026-01-15'",
    "day > DATE'2026-02-01' - INTERVAL 3 DAYS",
    "year(day) = 2026 AND month(day) = 2",
    "at > '2026-01-01 00:00:10'",
    "at <= TIMESTAMP'2026-01-01 00:00:05.333328'",
    "at >= TIMESTAMP'2026-01-01 01:00:05+01:00'",
    "local_at < TIMESTAMP_NTZ'2026-01-01 00:00:03'",
    "CAST(at AS DATE) = '2026-01-01'",
    "even",
    "NOT even",
    "even IS NULL",
    "even OR id < 3",
    "nested.inner.n > 55",
    "nested.inner.label = 'l3' AND id > 30",
    "items[0] = 12",
    "array_contains(items, 13)",
    "size(items) = 2 AND id > 50",
    "dayofweek(day) = 1",
    "extract(dow FROM day) = 2",
    "name RLIKE '^x+3[0-9]$'",
    "name ILIKE 'IT%'",
    "at > TIMESTAMP'2026-01-01 00:00:15' - INTERVAL 10 SECONDS",
    "single > 0.1 AND id = '7'",
    "coalesce(ratio, 100) > 50",
    "length(name) > 40 AND id % 2 = 0",
    "CASE WHEN id > 50 THEN even ELSE false END",
]


@pytest.fixture(scope="module")
def table(oracle, tmp_path_factory):
    path = tmp_path_factory.mktemp("predicates") / "table"
    oracle.write(path, ROWS, files=5)
    return path


@pytest.fixture(scope="module")
def truths(oracle, table):
    """Return what Spark says of each predicate and row, in one query.

    As columns, because its filters lose -0.0 where 0 is asked for when they skip row groups.
    """
    columns = ["id", *(f"({predicate}) AS p{n}" for n, predicate in enumerate(PREDICATES))]
    return [json.loads(row) for row in oracle.rows(table, columns=columns)]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_predicate_keeps_the_rows_that_spark_keeps(table, truths, predicate):
    name = f"p{PREDICATES.index(predicate)}"
    found = lakehand.open_table(table).to_arrow(columns=["id"], where=predicate)
    assert sorted(found["id"].to_pylist()) == sorted(row["id"] for row in truths if row.get(name))
