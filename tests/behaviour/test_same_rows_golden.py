"""Golden tables hold the same rows after every kind of rewrite, for lakehand and for delta-rs."""

from __future__ import annotations

import pytest

from lakehand.errors import RefusedError
from support.exact_values import exact_rows
from support.forced_compactions import compact_here
from support.golden import ABSENT_REASON, GOLDEN, expected_of, read_names
from support.golden_copies import REFUSED, copy_golden, rewrite, rewritten_names
from support.rows import delta_rs_rows, delta_table, lakehand_rows
from support.small_tables import fingerprint
from support.spark_json import to_json_lines

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=ABSENT_REASON)

NAMES = rewritten_names()
SMALL = [name for name in NAMES if expected_of(name)["rows"] < 10_000]
#: Both methods, and a million rows one by one, are left to the long run.
WAYS = [(name, ("merge", "copy")[place % 2]) for place, name in enumerate(SMALL)]
OTHER_WAYS = [(name, way) for name in NAMES for way in ("merge", "copy") if (name, way) not in WAYS]


def seen_by_delta_rs(path):
    """Return what delta-rs reads; None if it cannot read the table."""
    try:
        return exact_rows(delta_rs_rows(path))
    except Exception:  # noqa: BLE001  whatever it raises, it does not read the table
        return None


def assert_expected_rows(path, name):
    expected, rows = expected_of(name), lakehand_rows(path)
    assert rows.num_rows == expected["rows"]
    if "data" in expected:
        schema = delta_table(path).snapshot().native.schema
        assert sorted(to_json_lines(rows, schema)) == expected["data"]
    return exact_rows(rows)


def assert_merged_table_is_the_same(name, way, path):
    before, seen_before = assert_expected_rows(path, name), seen_by_delta_rs(path)

    rewrite(path, way)
    again = compact_here(path)

    assert again.outcome == "nothing_to_do"
    assert assert_expected_rows(path, name) == before
    assert seen_before is None or seen_by_delta_rs(path) == seen_before


@pytest.mark.parametrize(("name", "way"), WAYS)
@pytest.mark.one_in(2)
def test_a_merged_golden_table_holds_the_same_rows(name, way, tmp_path):
    assert_merged_table_is_the_same(name, way, copy_golden(name, tmp_path))


@pytest.mark.soak
@pytest.mark.parametrize(("name", "way"), OTHER_WAYS)
def test_a_golden_table_merged_the_other_way_holds_the_same_rows(name, way, tmp_path):
    assert_merged_table_is_the_same(name, way, copy_golden(name, tmp_path))


def assert_divided_table_is_the_same(name, path):
    old = set(delta_table(path).snapshot().files["path"].to_pylist())

    rewrite(path, "split")

    assert not old & set(delta_table(path).snapshot().files["path"].to_pylist())
    assert_expected_rows(path, name)


@pytest.mark.parametrize("name", SMALL[::2])
@pytest.mark.one_in(2)
def test_a_golden_table_holds_the_same_rows_after_every_file_was_divided(name, tmp_path):
    assert_divided_table_is_the_same(name, copy_golden(name, tmp_path))


@pytest.mark.soak
@pytest.mark.parametrize("name", SMALL[1::2])
def test_every_other_golden_table_holds_the_same_rows_after_it_was_divided(name, tmp_path):
    assert_divided_table_is_the_same(name, copy_golden(name, tmp_path))


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_is_not_rewritten_is_refused_by_the_name_of_its_feature(name, tmp_path):
    path = copy_golden(name, tmp_path)
    before = fingerprint(path)

    with pytest.raises(RefusedError, match=REFUSED[name]):
        compact_here(path)

    assert fingerprint(path) == before


def test_every_golden_table_with_rows_is_rewritten_or_on_the_list_of_refusals():
    with_rows = {name for name in read_names() if expected_of(name)["rows"]}
    assert with_rows == {*NAMES, *REFUSED}
    assert len(NAMES) > 70
