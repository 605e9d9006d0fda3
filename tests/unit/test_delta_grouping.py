"""Partitions are told apart by the spelling of their values."""

from __future__ import annotations

import pyarrow as pa

from lakehand.formats.delta.write.file_schema import partition_keys

TEXT_MAP = pa.map_(pa.string(), pa.string())


def keys_of(*columns, count=2, cubes=None):
    raw = [pa.chunked_array([column]).dictionary_encode() for column in columns]
    cubes = None if cubes is None else pa.chunked_array([cubes])
    return partition_keys(raw, count, cubes=cubes).to_pylist()


def test_files_without_partition_columns_are_one_partition():
    assert keys_of() == [0, 0]


def test_raw_values_decide_and_null_is_a_value():
    first, other, null, again = keys_of(["1", "01", None, "1"], count=4)

    assert first == again
    assert len({first, other, null}) == 3


def test_partitions_are_told_apart_by_all_of_their_columns():
    first, other, different, again = keys_of(["1", "1", "2", "1"], ["2", "1", "2", "2"], count=4)

    assert first == again
    assert len({first, other, different}) == 3


def test_files_of_one_cube_stay_apart_from_others():
    tags = pa.array([[("ZCUBE_ID", "a")], None, [("ZCUBE_ID", "a")], [("ZCUBE_ID", "b")]], TEXT_MAP)

    first, without, again, other = keys_of(count=4, cubes=tags)

    assert first == again
    assert len({first, without, other}) == 3
