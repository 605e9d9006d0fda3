"""Which versions of a log hold values that the newest version of the table does not."""

from __future__ import annotations

import json

import pytest

from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.retention.erasure import find_old_values, live_partition_values
from lakehand.storage import open_store
from support.hand_written_logs import add, field, metadata, protocol, remove
from support.small_tables import commit_by_hand

STATS = json.dumps({"numRecords": 1, "minValues": {"a": "x"}, "maxValues": {"a": 'y: {"b": 1}'}})
OF_OTHERS = json.dumps({"numRecords": 1, "minValues": {"gone": 1}, "maxValues": {"gone": 2}})
COUNT = json.dumps({"numRecords": 1})
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def entry(make, path, *, stats=STATS, **members):
    """Return an action with statistics of its own."""
    (kind,) = action = make(path, **members, **({"at_ms": 1} if make is remove else {}))
    action[kind] = {name: value for name, value in action[kind].items() if name != "stats"}
    return {kind: action[kind] | ({"stats": stats} if stats else {})}


def found(path, *commits, partition_by=()):
    (path / "_delta_log").mkdir(parents=True)
    columns = [field("a", "string"), *(field(name, "string") for name in partition_by)]
    commit_by_hand(path, protocol(), metadata(*columns, partition_by=partition_by))
    for actions in commits:
        commit_by_hand(path, *actions)
    store = open_store(path)
    state = load_state_at(store).metadata
    live = live_partition_values(store, state)
    values = find_old_values(store, list_log(store), state, live)
    return values.last_removal, values.clean_from


def test_a_log_of_appends_holds_nothing_old(tmp_path):
    assert found(tmp_path / "t", [entry(add, "1")], [entry(add, "2")]) == (None, 0)


def test_statistics_of_a_removed_file_are_old_up_to_its_removal(tmp_path):
    went = entry(remove, "1", dataChange=True)
    assert found(tmp_path / "t", [entry(add, "1")], [went], [entry(add, "2")]) == (2, 3)


def test_a_removal_without_statistics_is_clean_itself(tmp_path):
    went = entry(remove, "1", dataChange=True, stats=COUNT)
    assert found(tmp_path / "t", [entry(add, "1")], [went]) == (2, 2)


def test_a_compaction_removes_no_values(tmp_path):
    compacted = [entry(remove, "1", dataChange=False), entry(add, "2", dataChange=False)]
    assert found(tmp_path / "t", [entry(add, "1")], compacted) == (None, 0)


def test_a_compaction_of_files_with_deleted_rows_does(tmp_path):
    vector = {"deletionVector": VECTOR}
    compacted = [entry(remove, "1", dataChange=False, **vector), entry(add, "2", dataChange=False)]
    assert found(tmp_path / "t", [entry(add, "1", **vector)], compacted) == (2, 3)


@pytest.mark.parametrize("stats", [STATS, COUNT])
def test_a_compaction_of_files_from_before_a_column_was_dropped_does(tmp_path, stats):
    wider = [metadata(field("a", "string"), field("gone", "long"))]
    came = [entry(add, "1", stats=stats), entry(add, "2")]
    dropped, later = [metadata(field("a", "string"))], [entry(add, "3")]
    first, last = entry(remove, "1", dataChange=False), entry(remove, "3", dataChange=False)
    assert found(tmp_path / "t", wider, came, dropped, later, [first], [last]) == (5, 5)


def test_a_compaction_that_removes_statistics_of_unknown_columns_does(tmp_path):
    went = entry(remove, "1", dataChange=False, stats=OF_OTHERS)
    assert found(tmp_path / "t", [entry(add, "1", stats=OF_OTHERS)], [went]) == (2, 3)


def test_the_rewrite_of_a_purge_is_a_removal_whatever_it_removed(tmp_path):
    info = {"commitInfo": {"lakehand": {"purge": True}}}
    went = entry(remove, "1", dataChange=False, stats=None)
    assert found(tmp_path / "t", [entry(add, "1", stats=None)], [info, went]) == (2, 2)


def test_a_predicate_that_removed_rows_is_old_whatever_it_says(tmp_path):
    info = {"commitInfo": {"operationParameters": {"predicate": '["(a = secret)"]'}}}
    went = entry(remove, "1", dataChange=True, stats=None)
    assert found(tmp_path / "t", [entry(add, "1")], [info, went]) == (2, 3)


def test_a_predicate_with_a_literal_is_old_although_rows_only_came(tmp_path):
    info = {"commitInfo": {"operationParameters": {"notMatchedPredicates": "[\"s.a <> 'x'\"]"}}}
    assert found(tmp_path / "t", [info, entry(add, "1", dataChange=True)]) == (None, 2)


def test_a_join_of_keys_names_no_value(tmp_path):
    info = {"commitInfo": {"operationParameters": {"predicate": '"target.`a` <=> source.`a`"'}}}
    assert found(tmp_path / "t", [info, entry(add, "1", dataChange=True)]) == (None, 0)


def test_a_partition_value_is_old_when_no_live_file_has_it(tmp_path):
    def of(make, name, value):
        return entry(make, name, stats=COUNT, dataChange=True, partitionValues={"p": value})

    came = [of(add, "1", "x"), of(add, "2", "y"), of(add, "3", "y")]
    assert found(tmp_path / "a", came, [of(remove, "2", "y")], partition_by=["p"]) == (2, 2)
    assert found(tmp_path / "b", came, [of(remove, "1", "x")], partition_by=["p"]) == (2, 3)
