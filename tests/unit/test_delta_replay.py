from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from lakehand.errors import CorruptLogError, ObjectNotFoundError
from lakehand.formats.delta.log.listing import find_segment
from lakehand.formats.delta.log.log_state import load_soundly
from lakehand.formats.delta.log.replay import live_actions
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol import names
from lakehand.storage import open_store
from support.checkpoints import ADD, json_lines, put_checkpoint
from support.hand_written_logs import add, field, metadata, new_log, protocol, put_commit, remove

START = (protocol(), metadata())


def vector(name: str, **members) -> dict:
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "sizeInBytes": 4,
        "cardinality": 1,
    } | members


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"x"',
        b"[1]",
        b"garbage",
        b'{"add":{"size":1}}',
        b'{"add":{"path":"x","size":"many"}}',
        b'{"add":{"path":"%FF"}}',
        b'{"add":{"path":"x"},"remove":{"path":"y"}}',
        b'{"add":{"path":"x"}}\n{"remove":{"path":"x"}}',
    ],
)
def test_a_commit_that_cannot_be_understood_is_a_typed_error(line):
    store = new_log(START)
    store.put(names.commit_key(1), line)
    with pytest.raises(CorruptLogError) as caught:
        load_snapshot(store)
    assert caught.value.hint


def test_numbers_in_text_stay_text():
    columns = {"partitionValues": {"p": "007"}, "tags": {"t": "1.10", "n": None}}
    by_p = metadata(field("p", "string"), partition_by=["p"])
    store = new_log((protocol(), by_p), [add("x", **columns, own={"deep": [1]})])
    files = load_snapshot(store).files["native"].to_pylist(maps_as_pydicts="strict")
    assert files[0]["partition_values"] == {"p": "007"}
    assert files[0]["tags"] == {"t": "1.10", "n": None}


def test_full_adds_keep_what_lakehand_does_not_know():
    action = add("x y", own={"deep": [1, {"a": None}]}, tags={"t": None}, baseRowId=5)
    store = new_log(START, [action])
    assert live_actions(store, find_segment(store), ["x y"]) == [action["add"]]
    assert live_actions(store, find_segment(store), []) == []


def test_full_adds_of_a_checkpoint_leave_out_what_is_null():
    action = add("x", deletionVector=vector("v", offset=1), tags={"t": "1"})
    store = new_log(START, [])
    put_checkpoint(store, 1, [*START, action])
    assert live_actions(store, find_segment(store), ["x"]) == [action["add"]]


def test_statistics_kept_as_structs_only_become_json_again():
    bounds = pa.struct([("id", pa.int64()), ("s", pa.struct([("x", pa.decimal128(30, 2))]))])
    parsed = pa.struct([("numRecords", pa.int64()), ("minValues", bounds)])
    plain = [member for member in ADD if member.name != "stats"]
    lowest = {"id": None, "s": {"x": Decimal("12345678901234567890.10")}}
    action = add("x", stats_parsed={"numRecords": 7, "minValues": lowest})
    store = new_log(START, [])
    type_ = pa.struct([*plain, pa.field("stats_parsed", parsed)])
    put_checkpoint(store, 1, [*START, action], add=type_)
    text = live_actions(store, find_segment(store), ["x"])[0]["stats"]
    assert text == '{"numRecords":7,"minValues":{"s":{"x":12345678901234567890.10}}}'
    assert load_snapshot(store).files["rows"].to_pylist() == [7]


def test_a_path_with_wildcards_is_read_literally(tmp_path):
    store = open_store(tmp_path / "t[1]*?{a,b}")
    put_commit(store, 0, *START, add("x"))
    put_checkpoint(store, 0, [*START, add("x")])
    put_commit(store, 1, add("y"))
    assert sorted(load_snapshot(store).files["path"].to_pylist()) == ["x", "y"]


def test_opening_a_table_does_not_load_pandas(tmp_path):
    table = metadata(field("day", "date"), partition_by=["day"])
    put_commit(open_store(tmp_path), 0, protocol(), table, add("x", partitionValues={"day": ""}))
    program = (
        "import sys; from lakehand.storage import open_store; "
        "from lakehand.formats.delta.log.snapshot import load_snapshot; "
        "assert load_snapshot(open_store(sys.argv[1])).file_count == 1; "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == 0


def test_a_line_of_many_megabytes_is_read():
    store = new_log(START, [add("x", tags={"long": "a" * 20_000_000})])
    assert load_snapshot(store).file_count == 1


def test_statistics_that_are_no_json_say_nothing():
    store = new_log(START, [add("x", stats="oops"), add("y", rows=3)])
    files = load_snapshot(store).files.to_pylist()
    assert {file["path"]: file["rows"] for file in files} == {"x": None, "y": 3}


@pytest.mark.parametrize("typed", [5, None])
def test_row_counts_come_from_typed_statistics_where_all_files_have_them(typed):
    parsed = pa.struct([("numRecords", pa.int64())])
    type_ = pa.struct([*ADD, pa.field("stats_parsed", parsed)])
    known = add("x", rows=7, stats_parsed={"numRecords": 7})
    other = add("y", rows=5, stats_parsed={"numRecords": typed})
    store = new_log(START, [])
    put_checkpoint(store, 1, [*START, known, other], add=type_)
    files = load_snapshot(store).files.to_pylist()
    assert {file["path"]: file["rows"] for file in files} == {"x": 7, "y": 5}


def test_a_log_that_is_cleaned_while_it_is_read_is_looked_at_again():
    store = new_log(START, [add("a")], [add("b")])
    load = load_once_after(lambda: clean(store))
    assert load_soundly(store, None, load).commits == ()


def test_a_file_that_stays_away_is_a_typed_error():
    def load(segment):
        raise ObjectNotFoundError("gone", path="x")

    with pytest.raises(CorruptLogError, match="vanished"):
        load_soundly(new_log(START), None, load)


def clean(store) -> None:
    """Put a checkpoint in the place of all commits, as cleaning the log does."""
    put_checkpoint(store, 2, [*START, add("a"), add("b")])
    store.delete([names.commit_key(version) for version in range(3)])


def load_once_after(event):
    """Return a loader that `event` disturbs at its first try."""
    events = [event]

    def load(segment):
        if events:
            events.pop()()
            raise ObjectNotFoundError("gone", path="x")
        return segment

    return load


def test_a_large_commit_is_read_in_place_beside_small_ones():
    padding = {"tags": {"long": "a" * 2_000}}
    many = [add(f"f{number}", **padding) for number in range(600)]
    store = new_log(START, many, [add("g"), remove("f1", at_ms=1)])
    paths = load_snapshot(store).files["path"].to_pylist()
    assert sorted(paths) == sorted([f"f{n}" for n in range(600) if n != 1] + ["g"])


def test_a_large_commit_that_is_damaged_is_named():
    store = new_log(START)
    store.put(names.commit_key(1), json_lines([add("x", tags={"long": "a" * 2**21})])[:-3])
    with pytest.raises(CorruptLogError, match=r"01\.json"):
        load_snapshot(store)


def test_an_action_touches_only_the_deletion_vector_that_it_names():
    store = new_log(START, [])
    put_checkpoint(store, 1, [*START, add("a", deletionVector=vector("v", offset=1))])
    put_commit(store, 2, remove("a", at_ms=1), remove("a", at_ms=1, deletionVector=vector("v")))
    assert load_snapshot(store).file_count == 1
    put_commit(store, 3, remove("a", at_ms=1, deletionVector=vector("v", offset=1)))
    assert load_snapshot(store).file_count == 0
