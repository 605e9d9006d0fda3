"""Files without rows, without columns, with old calendars and strange types keep their rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lakehand.errors import RefusedError
from support.exact_values import exact, exact_rows
from support.forced_compactions import compact_here
from support.hand_made_tables import add_by_hand, make_by_hand
from support.hand_written_logs import field
from support.plain_reader import live_adds
from support.reading import array, map_of, struct
from support.rows import lakehand_rows
from support.small_tables import fingerprint

NEW_SPARK = {"org.apache.spark.version": "4.2.0"}
OLD_CALENDAR = {**NEW_SPARK, "org.apache.spark.legacyDateTime": ""}
ANCIENT = pa.array([-300_000], pa.int32()).view(pa.date32())
MODERN = pa.array([20_000], pa.int32()).view(pa.date32())
NO_ROWS = pa.table({"a": pa.array([], pa.int64())})


def assert_same_rows_in(path, files, *, method=None):
    """Compact a table twice and see that its rows stay, and that there was no more to do."""
    before = exact_rows(lakehand_rows(path))

    compact_here(path, method=method)

    assert exact_rows(lakehand_rows(path)) == before
    assert len(live_adds(path)) == files
    assert compact_here(path).outcome == "nothing_to_do"


# Rows


@pytest.mark.parametrize("method", ["recode", "copy"])
def test_files_without_rows_vanish_into_others(tmp_path, method):
    path = make_by_hand(tmp_path / "t", field("a", "long"))
    for rows in (NO_ROWS, pa.table({"a": [1, 2]}), NO_ROWS):
        add_by_hand(path, rows)
    assert_same_rows_in(path, files=1, method=method)


def test_files_without_rows_alone_become_no_file(tmp_path):
    path = make_by_hand(tmp_path / "t", field("a", "long"))
    for _ in range(3):
        add_by_hand(path, NO_ROWS)
    assert_same_rows_in(path, files=0)


def test_files_whose_rows_are_all_deleted_become_no_file(tmp_path):
    path = make_by_hand(tmp_path / "t", field("a", "long"))
    for start in (0, 3):
        add_by_hand(path, {"a": [start, start + 1]}, deleted=BitMap64([0, 1]))
    assert_same_rows_in(path, files=0)


def test_one_file_whose_rows_are_all_deleted_becomes_no_file(tmp_path):
    path = make_by_hand(tmp_path / "t", field("a", "long"))
    add_by_hand(path, {"a": [1, 2]}, deleted=BitMap64([0, 1]))
    add_by_hand(path, {"a": list(range(1000))}, deleted=BitMap64(range(1, 1000)))
    assert_same_rows_in(path, files=1)


@pytest.mark.parametrize("method", ["recode", "copy"])
def test_rows_stay_in_the_order_of_their_files(tmp_path, method):
    path = make_by_hand(tmp_path / "t", field("a", "long"), field("b", "string"))
    for start in range(0, 5_000, 1_000):
        numbers = range(start, start + 1_000)
        add_by_hand(path, {"a": list(numbers), "b": [f"{n:05}" for n in numbers]})

    compact_here(path, method=method)

    [add] = live_adds(path)
    assert pq.read_table(path / add["path"])["a"].to_pylist() == list(range(5_000))


# Columns


def test_files_that_hold_no_column_of_the_table_count_their_rows(tmp_path):
    path = make_by_hand(tmp_path / "t", field("a", "long"), field("b", "string"))
    for rows in ([1, 2], [3]):
        add_by_hand(path, {"gone": rows})
    assert_same_rows_in(path, files=1)
    assert lakehand_rows(path).num_rows == 3


def test_partition_values_are_all_that_some_files_hold(tmp_path):
    columns = field("a", "long"), field("p", "string")
    path = make_by_hand(tmp_path / "t", *columns, partition_by=["p"])
    for rows in ([1, 2], [3]):
        add_by_hand(path, {"gone": rows}, partition={"p": "x"})
    assert_same_rows_in(path, files=1)
    assert exact(lakehand_rows(path)["p"]) == ["x"] * 3


@pytest.mark.parametrize("name", ['a"b`c', "given", "stored", "c0", "__lakehand_lane_1", "a.b"])
def test_names_of_columns_are_free(tmp_path, name):
    path = make_by_hand(tmp_path / "t", field(name, "long"), field("p", "long"))
    for rows in ([1, 2], [3]):
        add_by_hand(path, {name: rows})
    assert_same_rows_in(path, files=1)


def test_columns_are_found_by_their_exact_names_first(tmp_path):
    path = make_by_hand(tmp_path / "t", field("a", "long"), field("B", "long"))
    add_by_hand(path, {"a": [1], "A": [2], "b": [3]})
    add_by_hand(path, {"A": [4], "a": [5], "b": [6]})
    assert_same_rows_in(path, files=1)
    assert exact_rows(lakehand_rows(path)) == {(1, 3): 1, (5, 6): 1}


# Types


TIMES = pa.timestamp("us", tz="UTC")
INTEGERS = array("integer")
STORED = {
    "unsigned": ("long", pa.array([2**32 - 1, 0], pa.uint32())),
    "wider than it says": ("byte", pa.array([127, -128], pa.int32())),
    "nanoseconds": ("timestamp", pa.array([1001, -1], pa.timestamp("ns", tz="UTC"))),
    "another zone": ("timestamp", pa.array([1, 2], pa.timestamp("us", tz="America/New_York"))),
    "all times": ("timestamp", pa.array([2**63 - 1, -(2**63)], pa.int64()).view(TIMES)),
    "all clocks": (
        "timestamp_ntz",
        pa.array([2**63 - 1, -(2**63)], pa.int64()).view(pa.timestamp("us")),
    ),
    "all days": ("date", pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())),
    "bytes of one length": ("binary", pa.array([b"abcd", None], pa.binary(4))),
    "large text": ("string", pa.array(["x" * 100_000, None], pa.large_string())),
    "text in a dictionary": ("string", pa.array(["x", None]).dictionary_encode()),
    "large lists": (INTEGERS, pa.array([[1], []], pa.large_list(pa.int32()))),
    "lists of one length": (INTEGERS, pa.array([[1, 2], None], pa.list_(pa.int32(), 2))),
    "keys that repeat": (
        map_of("string", "integer"),
        pa.array([[("a", 1), ("a", 2)], []], pa.map_(pa.string(), pa.int32())),
    ),
    "void inside": (
        struct(field("x", "long"), field("v", "void")),
        pa.array([{"x": 1}, None], pa.struct({"x": pa.int64()})),
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_values_survive_however_they_were_stored(tmp_path, name):
    kind, values = STORED[name]
    path = make_by_hand(tmp_path / "t", field("c", kind))
    for _ in range(2):
        add_by_hand(path, {"c": values})
    assert_same_rows_in(path, files=1)


def test_text_that_is_no_utf8_survives_and_has_no_wrong_bounds(tmp_path):
    texts = [b"\xff\xfe", b"ok", b"z" * 40 + b"\xc3", None]
    rows = pa.table({"s": pa.array(texts)}).cast(pa.schema({"s": pa.string()}), safe=False)
    path = make_by_hand(tmp_path / "t", field("s", "string"))
    for _ in range(2):
        add_by_hand(path, rows)

    compact_here(path)

    assert lakehand_rows(path)["s"].cast(pa.binary(), safe=False).to_pylist() == texts * 2
    stats = json.loads(live_adds(path)[0]["stats"])
    assert stats["nullCount"] == {"s": 2}
    assert stats["minValues"].get("s", "").encode() <= min(text for text in texts if text)
    assert stats["maxValues"] == {}


@pytest.mark.parametrize(
    "kind",
    [
        array("void"),
        array(struct(field("x", "long"), field("v", "void"))),
        map_of("string", struct(field("x", "long"), field("v", "void"))),
        struct(field("v", "void")),
    ],
)
def test_void_where_files_cannot_hold_it_is_refused_by_name(tmp_path, kind):
    path = make_by_hand(tmp_path / "t", field("a", "long"), field("c", kind))
    for _ in range(2):
        add_by_hand(path, {"a": [1]})
    before = fingerprint(path)

    with pytest.raises(RefusedError, match="void"):
        compact_here(path)

    assert fingerprint(path) == before


# Calendars


def calendars_of(path):
    """Return the marks of every live file, with the dates that it holds."""
    found = {}
    for add in live_adds(path):
        marks = pq.read_metadata(path / add["path"]).metadata or {}
        kept = {key.decode(): v.decode() for key, v in marks.items() if b"spark" in key}
        found[json.dumps(kept, sort_keys=True)] = exact(pq.read_table(path / add["path"])["d"])
    return found


@pytest.mark.parametrize("method", ["recode", "copy"])
def test_old_dates_of_several_calendars_stay_in_files_of_their_own(tmp_path, method):
    path = make_by_hand(tmp_path / "t", field("d", "date"))
    for marks in (OLD_CALENDAR, NEW_SPARK, {}, OLD_CALENDAR, NEW_SPARK, {}):
        add_by_hand(path, {"d": ANCIENT}, key_values=marks)

    assert_same_rows_in(path, files=3, method=method)

    expected = (OLD_CALENDAR, NEW_SPARK, {})
    assert calendars_of(path) == {
        json.dumps(marks, sort_keys=True): [-300_000] * 2 for marks in expected
    }


def test_dates_on_which_calendars_agree_share_a_file(tmp_path):
    path = make_by_hand(tmp_path / "t", field("d", "date"))
    for marks in (OLD_CALENDAR, NEW_SPARK, {}):
        add_by_hand(path, {"d": MODERN}, key_values=marks)
    assert_same_rows_in(path, files=1)
    assert list(calendars_of(path)) == [json.dumps(NEW_SPARK)]


def test_one_old_date_keeps_calendars_apart_in_its_partition_only(tmp_path):
    columns = field("d", "date"), field("p", "string")
    path = make_by_hand(tmp_path / "t", *columns, partition_by=["p"])
    for partition, day in (("old", ANCIENT), ("new", MODERN)):
        for marks in (OLD_CALENDAR, OLD_CALENDAR, NEW_SPARK, NEW_SPARK):
            add_by_hand(path, {"d": day}, key_values=marks, partition={"p": partition})

    assert_same_rows_in(path, files=3)

    partitions = sorted(add["partitionValues"]["p"] for add in live_adds(path))
    assert partitions == ["new", "old", "old"]


def test_old_dates_that_became_timestamps_are_refused_where_readers_shift_them(tmp_path):
    widened = {"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]}
    path = make_by_hand(tmp_path / "t", field("d", "timestamp_ntz", **widened))
    for _ in range(2):
        add_by_hand(path, {"d": ANCIENT}, key_values=OLD_CALENDAR)
    before = fingerprint(path)

    with pytest.raises(RefusedError, match="calendar"):
        compact_here(path, method="recode")

    assert fingerprint(path) == before


def test_columns_that_differ_by_case_only_are_not_taken_for_others(tmp_path):
    """DuckDB calls the second of them `X_1`, which is the name of a column of the table."""
    path = make_by_hand(tmp_path / "t", field("id", "long"), field("X_1", "long"))
    for number in range(3):
        names = ["id", "x", "X", "X_1"]
        values = [[number], [-1], [-2], [100 + number]]
        columns = [pa.array(value, pa.int64()) for value in values]
        add_by_hand(path, pa.table(columns, names=names))

    assert_same_rows_in(path, files=1, method="recode")
    assert sorted(row["X_1"] for row in lakehand_rows(path).to_pylist()) == [100, 101, 102]
