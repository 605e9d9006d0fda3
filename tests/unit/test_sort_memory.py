"""What a sort holds at once: bytes are counted, and Arrow's memory is given back."""

from __future__ import annotations

import pyarrow as pa

from lakehand.formats.worker import TaskLimits
from lakehand.rewrite.sort import gathered
from lakehand.sorting.key_ranges import RangeSpool, low_memory_arrow

KIB = 2**10
LONG = pa.record_batch({"id": range(64), "text": ["x" * KIB] * 64})


def test_long_rows_are_divided_by_bytes():
    tables = list(gathered([LONG, LONG], 16 * KIB))

    assert all(table.nbytes < 2 * 16 * KIB for table in tables)
    assert [n for table in tables for n in table["id"].to_pylist()] == [*range(64), *range(64)]


def test_a_row_longer_than_all_that_is_allowed_comes_alone():
    tables = list(gathered([LONG.slice(0, 3)], 10))

    assert [table.num_rows for table in tables] == [1, 1, 1]


def test_short_rows_and_no_rows_are_joined():
    [table] = gathered([LONG.slice(0, 1), LONG.slice(0, 0), LONG.slice(1, 2)], KIB**2)

    assert table["id"].to_pylist() == [0, 1, 2]


def test_a_task_that_sorts_has_another_pool_until_it_ends():
    usual = pa.default_memory_pool().backend_name
    with low_memory_arrow():
        meanwhile = pa.default_memory_pool().backend_name

    assert meanwhile == "jemalloc" != usual
    assert pa.default_memory_pool().backend_name == usual


def test_what_waits_on_disk_is_gone_with_its_process(tmp_path):
    limits = TaskLimits(memory_bytes=0, scratch_directory=str(tmp_path))
    with RangeSpool(1, limits=limits) as spool:
        spool.add(0, LONG)

        # A killed process cannot delete anything, but a file without a name needs no deleting.
        assert list(tmp_path.iterdir()) == []
        assert list(spool.take()) == [(0, [LONG])]
