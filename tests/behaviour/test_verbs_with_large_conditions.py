"""Every verb that takes a condition takes the ones that programs write."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakehand
from lakehand.errors import ConstraintError, PredicateError
from support.compactions import tasks_inline
from support.small_tables import make_table

LARGE = {
    "list": f"id IN ({', '.join(map(str, range(10, 3000)))})",
    "chain": " OR ".join(f"id = {number}" for number in range(10, 3000)),
    "nested": "NOT " * 60 + "(" * 60 + "id >= 10" + ")" * 60,
    "mixed": " AND ".join([f"id <> {number}" for number in range(10)] + ["id >= 0"] * 60),
}
TOO_DEEP = "(id = 1 OR (id > 5 AND " * 200 + "id = 2" + "))" * 200


@pytest.fixture
def table(tmp_path):
    return lakehand.open_table(make_table(tmp_path / "t", commits=4))


@pytest.mark.parametrize("where", LARGE.values(), ids=LARGE)
def test_to_arrow_takes_large_conditions_and_skips_files(table, where):
    assert sorted(table.to_arrow(where=where)["id"].to_pylist()) == list(range(10, 40))


@pytest.mark.parametrize("where", LARGE.values(), ids=LARGE)
def test_delete_takes_large_conditions(table, where):
    table.delete(where=where)
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(10))


@pytest.mark.parametrize("verb", ["plan", "compact", "cluster"])
def test_rewrites_take_large_conditions_on_partitions(table, verb):
    where = f"region IN ('eu', {', '.join(repr(f'r{number}') for number in range(500))})"
    actions = {
        "plan": lambda: sum(len(group.paths) for group in table.plan(where=where).groups),
        "compact": lambda: table.compact(where=where).files_removed,
        "cluster": lambda: table.cluster(by=["id"], where=where).files_removed,
    }
    with tasks_inline():
        assert actions[verb]() == 4
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(40))


def test_what_nests_too_deeply_is_a_typed_error_of_every_verb(table):
    for verb in (table.to_arrow, table.delete, table.plan, table.compact):
        with pytest.raises(PredicateError, match="nesting levels"):
            verb(where=TOO_DEEP)


def test_a_constraint_with_a_long_list_is_checked(tmp_path):
    schema = pa.schema([("id", pa.int64())])
    table = lakehand.create_table(tmp_path / "c", schema)
    DeltaTable(tmp_path / "c").alter.add_constraint({"known": LARGE["list"]})
    table.append(pa.table({"id": [10, 2999]}, schema=schema))
    with pytest.raises(ConstraintError, match="known"):
        table.append(pa.table({"id": [11, 5]}, schema=schema))
