"""Partitions are told apart by the spelling of their values."""

from __future__ import annotations

import pyarrow as pa

from lakehand.formats.delta.write.file_schema import partition_keys

TEXT_MAP = pa.map_(pa.string(), pa.string())


def keys_of(values, columns, **options):
    return partition_keys(pa.array(values, TEXT_MAP), columns, **options).to_pylist()


def test_files_without_partition_columns_are_one_partition():
    assert keys_of([[], []], []) == [0, 0]


def test_raw_values_decide_and_null_is_a_value():
    values = [[("p", "1")], [("p", "01")], [("p", None)], [("p", "1")]]

    first, other, null, again = keys_of(values, ["p"])

    assert first == again
    assert len({first, other, null}) == 3


def test_order_of_the_columns_in_the_log_does_not_matter():
    values = [[("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")], [("a", "2"), ("b", "1")]]

    first, swapped, different = keys_of(values, ["a", "b"])

    assert first == swapped != different


def test_files_of_one_cube_stay_apart_from_others():
    tags = pa.array([[("ZCUBE_ID", "a")], None, [("ZCUBE_ID", "a")], [("ZCUBE_ID", "b")]], TEXT_MAP)

    first, without, again, other = keys_of([[]] * 4, [], cubes=tags)

    assert first == again
    assert len({first, without, other}) == 3
