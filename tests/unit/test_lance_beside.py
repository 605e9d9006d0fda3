"""Rows that are read ahead: all of them, what reading fails with, and no thread that is left."""

from __future__ import annotations

import threading
import time
from itertools import count

import pyarrow as pa
import pytest

pytest.importorskip("lance")

from lakehand.formats.lance.prefetch import counted, read_ahead
from lakehand.prove.digest import Digester, digest

SCHEMA = pa.schema({"a": pa.int64()})


def batch(number):
    return pa.record_batch({"a": [number]})


def test_batches_come_in_their_order():
    with read_ahead(map(batch, range(50))) as rows:
        assert [row["a"][0].as_py() for row in rows] == list(range(50))


def test_the_next_batch_is_read_while_nobody_asks_for_it():
    is_read = threading.Event()

    def batches():
        yield batch(0)
        is_read.set()
        yield batch(1)

    with read_ahead(batches()) as rows:
        next(rows)
        assert is_read.wait(10)


def test_no_more_is_read_than_has_room():
    read = []
    with read_ahead(batch(number) for number in count() if read.append(number) is None) as rows:
        next(rows)
    assert len(read) < 10


def failing(number):
    yield from map(batch, range(number))
    raise OSError("a page is damaged")


def test_what_reading_fails_with_comes_after_the_rows_before_it():
    found = []
    with pytest.raises(OSError, match="damaged"), read_ahead(failing(20)) as rows:
        found.extend(rows)
    assert len(found) == 20


def test_a_failure_while_rows_are_read_fails_those_who_count_them():
    with Digester(SCHEMA) as digester, pytest.raises(OSError, match="damaged"):
        list(counted(failing(20), digester))


def test_rows_are_counted_once_each():
    with Digester(SCHEMA) as digester:
        passed = list(counted(map(batch, range(100)), digester))
        assert digester.result() == digest(map(batch, range(100)), SCHEMA)
    assert len(passed) == 100


@pytest.mark.parametrize("is_counted", [True, False])
def test_whoever_stops_early_leaves_no_thread(is_counted):
    before = threading.active_count()
    endless = map(batch, count())
    with Digester(SCHEMA) as digester:
        if is_counted:
            rows = counted(endless, digester)
            next(rows)
            rows.close()
        else:
            with read_ahead(endless) as rows:
                next(rows)
    assert threading.active_count() == before


def test_of_long_rows_one_batch_is_read_ahead():
    read = []

    def batches():
        for number in range(6):
            read.append(number)
            yield pa.record_batch({"a": [bytes(9 * 2**20)]})

    with read_ahead(batches()) as rows:
        for taken, _ in enumerate(rows):
            time.sleep(0.05)
            assert len(read) <= taken + 2
    assert len(read) == 6
