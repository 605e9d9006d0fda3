"""Merges leave what those of delta-spark and delta-rs leave, and what they read is right."""

from __future__ import annotations

import json
import random
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakehand.errors import MultipleMatchesError
from support.merges import (
    SOURCE,
    TARGET,
    as_source,
    in_order,
    in_table,
    make_target,
    random_merge,
    random_rows,
)
from support.oracle import OracleError

VECTORS, FEED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}
#: delta-rs writes none of these features but the feed.
KINDS = [
    {},
    {**VECTORS, **FEED, "delta.enableRowTracking": "true"},
    {**VECTORS, "partition_by": "part"},
    {**FEED, "delta.columnMapping.mode": "name"},
]
CHANGES = "_change_type"
METRICS = [f"numTargetRows{word}" for word in ("Inserted", "Updated", "Deleted")]


def random_case(path, seed, **properties):
    """Return a merge and its source; make the table, and a copy of it for the other engine."""
    chance = random.Random(seed)
    merge = random_merge(chance)
    files = [random_rows(chance, chance.randrange(1, 6)) for _ in range(chance.randrange(1, 4))]
    given = as_source(
        chance, random_rows(chance, chance.randrange(1, 9), distinct=chance.random() < 0.7)
    )
    make_target(path, files, **properties)
    return merge, given, shutil.copytree(path, path.with_name("theirs"))


def values_of(rows):
    """Return rows as a query of Spark."""
    lines = ", ".join(
        "(" + ", ".join("NULL" if value is None else repr(value) for value in row.values()) + ")"
        for row in rows
    )
    types = {"id": "BIGINT", "part": "STRING", "n": "INT", "note": "STRING", "kind": "STRING"}
    columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in types.items())
    return f"(SELECT {columns} FROM VALUES {lines} AS v({', '.join(types)}))"


def changes_in(oracle, path, version):
    rows = map(json.loads, oracle.changes(path, starting_version=version))
    return sorted((row[CHANGES], *(str(row[name]) for name in TARGET.names)) for row in rows)


def check_beside_spark(oracle, path, seed):
    properties = KINDS[(seed + seed // 20) % len(KINDS)]
    merge, given, theirs = random_case(path, seed, **properties)
    statement = merge.sql(theirs, values_of(given))
    try:
        report = merge.run(path, given)
    except MultipleMatchesError:
        with pytest.raises(OracleError, match="MULTIPLE_SOURCE_ROW"):
            oracle.sql(statement)
        return
    try:
        oracle.sql(statement)
    except OracleError as error:
        # delta-spark counts all rows that match where a merge also inserts, and not only those for
        # which a clause holds.
        if "MULTIPLE_SOURCE_ROW" not in str(error):
            raise
        return
    found = [in_order(map(json.loads, oracle.rows(one))) for one in (path, theirs)]
    assert found[0] == found[1] == in_table(path), statement
    [entry] = oracle.history(theirs)[:1]
    if entry["operation"] == "MERGE" and report.outcome == "committed":
        [own] = oracle.history(path)[:1]
        told = [[one["operationMetrics"][name] for name in METRICS] for one in (own, entry)]
        assert told[0] == told[1], statement
    if FEED.keys() <= properties.keys() and report.outcome == "committed":
        version = report.version
        assert changes_in(oracle, path, version) == changes_in(oracle, theirs, version), statement


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.one_in(20)
def test_a_merge_leaves_what_delta_spark_leaves(oracle, tmp_path, seed):
    check_beside_spark(oracle, tmp_path / "ours", seed)


def merged_by_delta_rs(path, merge, given):
    data = pa.Table.from_pylist(given, SOURCE)
    on = merge.on.replace("<=>", "IS NOT DISTINCT FROM")
    running = DeltaTable(str(path)).merge(data, on, source_alias="s", target_alias="t")
    for clause in merge.clauses:
        name = f"when_{clause.kind}_{clause.action}"
        if clause.action == "delete":
            running = getattr(running, name)(predicate=clause.condition)
            continue
        values = clause.values or {column: f"s.{column}" for column in TARGET.names}
        plain = {column.removeprefix("t."): value for column, value in values.items()}
        running = getattr(running, name)(updates=plain, predicate=clause.condition)
    return running.execute()


@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.one_in(10)
def test_a_merge_leaves_what_delta_rs_leaves(tmp_path, seed):
    merge, given, theirs = random_case(tmp_path / "ours", seed)
    try:
        merge.run(tmp_path / "ours", given)
    except MultipleMatchesError:
        return  # delta-rs lets one of them win, or writes the row twice.
    merged_by_delta_rs(theirs, merge, given)
    assert in_table(tmp_path / "ours") == in_table(theirs), merge.sql(theirs, values_of(given))
