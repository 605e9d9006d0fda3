from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakehand.model.batches import Feed, divide, gathered, join_batches, sliced


def _batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"a": pa.array(range(size), pa.int64())}) for size in sizes]


def test_batches_wait_until_there_are_enough_rows():
    found = [[batch.num_rows for batch in few] for few in gathered(_batches(1, 2, 5, 1), rows=3)]
    assert found == [[1, 2], [5], [1]]


def test_batches_wait_until_there_are_enough_bytes():
    found = [len(few) for few in gathered(_batches(1, 1, 9), rows=100, size=16)]
    assert found == [2, 1]
    assert list(gathered([], rows=1)) == []


def test_one_batch_is_joined_with_nothing_and_stays_itself():
    first, second = _batches(1, 2)
    assert join_batches([first]) is first
    assert join_batches([first, second]).num_rows == 3


def test_a_portion_has_no_more_items_than_are_allowed():
    found = list(divide([1, 1, 1, 1, 1], size_of=int, most_bytes=100, most_items=2))
    assert found == [[1, 1], [1, 1], [1]]


def test_slices_have_all_rows():
    table = pa.table({"a": range(7)})
    assert [part.num_rows for part in sliced(table, 3)] == [3, 3, 1]
    assert sliced(table.slice(0, 0), 3) == []


def test_a_thread_is_fed_and_gives_its_result():
    with ThreadPoolExecutor(1) as pool:
        feed = Feed(pool, sum, ahead=2)
        for number in range(10):
            feed.put(number)
        feed.end()
        assert feed.result() == 45


def test_what_the_thread_failed_with_is_raised_where_it_is_fed():
    def fail(items):
        next(items)
        raise OSError("disk is full")

    with ThreadPoolExecutor(1) as pool:
        feed = Feed(pool, fail, ahead=1)
        with pytest.raises(OSError, match="disk is full"):
            deque(map(feed.put, range(10)))


def test_the_thread_fails_with_whoever_feeds_it():
    with ThreadPoolExecutor(1) as pool:
        feed = Feed(pool, sum, ahead=2)
        feed.put(1)
        feed.fail(KeyError("stopped"))
        with pytest.raises(KeyError, match="stopped"):
            feed.result()
