"""The change data feed is row by row that of delta-spark, whatever happened to the table."""

from __future__ import annotations

import json
import random

import pytest

import lakehand
from lakehand.errors import ChangeFeedError, SchemaMismatchError
from support.oracle import OracleError

FEED = "'delta.enableChangeDataFeed' = 'true'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"
TABLES = {
    "rewritten files": ("", FEED),
    "vectors": ("", f"{FEED}, {VECTORS}"),
    "partitioned": ("PARTITIONED BY (day)", f"{FEED}, {VECTORS}"),
    "mapped": ("", f"{FEED}, {VECTORS}, 'delta.columnMapping.mode' = 'name'"),
    "mapped by id": ("PARTITIONED BY (day)", f"{FEED}, 'delta.columnMapping.mode' = 'id'"),
    "times": ("", f"{FEED}, 'delta.enableInCommitTimestamps' = 'true'"),
}
COLUMNS = "id LONG, day STRING, amount DECIMAL(9, 2), at TIMESTAMP, tags ARRAY<STRING>"
NEW = (
    "id, 'd' || id % 3 AS day, id / 4 AS amount, timestamp_seconds(id) AS at,"
    " array('t', NULL) AS tags"
)


def new_rows(chance):
    first = chance.randrange(40)
    return f"(SELECT {NEW} FROM range({first}, {first + chance.randrange(1, 12)}))"


def statements(chance, path):
    """Return one random statement of each kind."""
    table, number = f"delta.`{path}`", chance.randrange(40)
    names = "(id, day, amount, at, tags)"
    return {
        "insert": f"INSERT INTO {table} {names} {new_rows(chance)}",
        "delete": f"DELETE FROM {table} WHERE id % 7 = {number % 7}",
        "delete all of a day": f"DELETE FROM {table} WHERE day = 'd{number % 3}'",
        "update": f"UPDATE {table} SET amount = amount + 1 WHERE id > {number}",
        "move": f"UPDATE {table} SET day = 'd9' WHERE id = {number}",
        "merge": f"""MERGE INTO {table} AS t USING {new_rows(chance)} AS s ON t.id = s.id
            WHEN MATCHED AND s.id % 3 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET t.amount = s.amount
            WHEN NOT MATCHED THEN INSERT {names} VALUES (s.id, s.day, s.amount, s.at, s.tags)""",
        "merge nothing": f"""MERGE INTO {table} AS t USING {new_rows(chance)} AS s ON t.id = s.id
            WHEN MATCHED AND s.id < 0 THEN DELETE""",
        "overwrite": f"INSERT OVERWRITE {table} {names} {new_rows(chance)}",
        "optimize": f"OPTIMIZE {table}",
        "purge": f"REORG TABLE {table} APPLY (PURGE)",
        "restore": None,
        "lakehand": None,
        "column": None,
    }


def play(oracle, path, chance, *, steps):
    """Let delta-spark, and lakehand now and then, write a history.

    Before a statement delta-spark looks for new commits itself, so its cache may stay.
    """
    added = 0
    for _ in range(steps):
        kind = chance.choice(list(statements(chance, path)))
        if kind == "restore":
            version = chance.randrange(1, lakehand.open_table(path).snapshot().version + 1)
            if not added:
                oracle.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}", fresh=False)
        elif kind == "lakehand":
            use_lakehand(lakehand.open_table(path), chance)
        elif kind == "column":
            added += 1
            oracle.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN extra{added} INT", fresh=False)
        else:
            oracle.sql(statements(chance, path)[kind], fresh=False)


def use_lakehand(table, chance):
    number = chance.randrange(40)
    match chance.choice(["delete", "upsert", "compact"]):
        case "delete":
            table.delete(where=f"id = {number}", engine="local")
        case "upsert":
            taken = table.to_arrow(where=f"id < {number}")
            if len(set(taken["id"].to_pylist())) == taken.num_rows:
                table.upsert(taken, key=["id"], engine="local")
        case "compact":
            table.compact(min_files=2, engine="local")


def theirs(oracle, path, first, last):
    rows = oracle.sql(
        f"SELECT to_json(struct(* EXCEPT (_commit_timestamp))) AS row,"
        f" unix_micros(_commit_timestamp) AS us"
        f" FROM table_changes_by_path('{path}', {first}, {last})"
    )
    return sorted((row["us"], canonical(json.loads(row["row"]))) for row in rows)


def ours(path, first, last):
    found = lakehand.open_table(path).changes(from_version=first, to_version=last).read_all()
    times = found["_commit_timestamp"].cast("int64").to_pylist()
    rows = found.drop_columns(["_commit_timestamp"]).to_pylist()
    return sorted(zip(times, map(canonical, rows), strict=True))


def canonical(row):
    """Spell a row of either side in one way: JSON has no decimals and no timestamps."""
    kept = {name: value for name, value in row.items() if value is not None}
    kept["amount"] = float(kept["amount"])
    if not isinstance(kept["at"], str):
        kept["at"] = kept["at"].strftime("%Y-%m-%dT%H:%M:%S.") + "000Z"
    return json.dumps(kept, sort_keys=True)


def within(rows, first, last):
    return [row for row in rows if first <= json.loads(row[1])["_commit_version"] <= last]


def check_history(oracle, path, name, seed, *, steps, asks_for_each_range=True):
    """Compare the whole feed and two parts of it.

    Of many histories delta-spark reads the whole feed alone, which its parts are taken from.
    """
    chance = random.Random(seed)
    clause, properties = TABLES[name]
    oracle.sql(
        f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta {clause} TBLPROPERTIES ({properties})"
    )
    oracle.sql(f"INSERT INTO delta.`{path}` SELECT {NEW} FROM range(30)")
    play(oracle, path, chance, steps=steps)
    latest = lakehand.open_table(path).snapshot().version
    whole = theirs(oracle, path, 0, latest)
    assert ours(path, 0, latest) == whole, seed
    for first, last in ((latest // 2, latest), (1, latest // 2 + 1)):
        part = within(whole, first, last)
        if asks_for_each_range:
            part = theirs(oracle, path, first, last)
        assert ours(path, first, last) == part, (seed, first, last)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.one_in(3)
def test_the_changes_of_a_history_are_those_of_delta_spark(oracle, tmp_path, name):
    check_history(oracle, tmp_path / "t", name, seed=sorted(TABLES).index(name), steps=6)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("name", TABLES)
def test_the_changes_of_many_histories_are_those_of_delta_spark(oracle, tmp_path, name, seed):
    check_history(oracle, tmp_path / "t", name, seed, steps=15, asks_for_each_range=False)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("RENAME COLUMN day TO weekday", SchemaMismatchError),
        ("DROP COLUMN amount", SchemaMismatchError),
        ("SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')", ChangeFeedError),
        ("ADD COLUMN extra INT", None),
    ],
)
def test_changes_of_the_table_end_the_feed_as_in_delta_spark(oracle, tmp_path, statement, error):
    path = tmp_path / "t"
    _, properties = TABLES["mapped"]
    oracle.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta TBLPROPERTIES ({properties})")
    oracle.sql(f"INSERT INTO delta.`{path}` SELECT {NEW} FROM range(3)")
    oracle.sql(f"ALTER TABLE delta.`{path}` {statement}")

    if error is None:
        assert ours(path, 0, 2) == theirs(oracle, path, 0, 2)
        return
    with pytest.raises(OracleError):
        theirs(oracle, path, 0, 2)
    with pytest.raises(error):
        ours(path, 0, 2)
    assert ours(path, 0, 1) == theirs(oracle, path, 0, 1)
