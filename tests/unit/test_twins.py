"""Hashes that occur more than once are found, however many there are and in however many turns."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehand.prove.digest import Digester, SplitDigester
from lakehand.rows import table_exchange
from lakehand.rows.duplicates import has_turn, with_twins
from lakehand.rows.row_addresses import PlaceSet
from lakehand.rows.table_exchange import Partitions, open_exchange
from lakehand.runs import Run
from lakehand.settings import Settings
from lakehand.storage import open_store

HASHES = st.lists(st.one_of(st.integers(0, 20), st.integers(2**64 - 20, 2**64 - 1)), max_size=60)


def places_of_twins(hashes):
    counts = Counter(hashes)
    return [place for place, value in enumerate(hashes) if counts[value] > 1]


@given(hashes=HASHES, others=st.integers(0, 600))
def test_those_that_occur_twice_are_found_among_few_and_many(hashes, others):
    hashes = hashes + [1000 + (n << 40) for n in range(others)]

    assert with_twins(np.array(hashes, np.uint64)).tolist() == places_of_twins(hashes)


@given(hashes=HASHES, turns=st.integers(1, 7))
def test_equal_hashes_have_the_same_turn_and_each_has_one(hashes, turns):
    given = np.array(hashes, np.uint64)

    chosen = [has_turn(given, turn, turns=turns) for turn in range(turns)]

    assert np.sum(chosen, axis=0).tolist() == [1] * len(hashes)
    for number in set(hashes):
        assert len({turn for turn in range(turns) if chosen[turn][given == number].any()}) == 1


def test_a_set_of_places_knows_rows_behind_its_last_one():
    places = PlaceSet([np.array([1, 3]), np.array([], np.int64), np.array([0])])

    files = np.array([0, 0, 0, 0, 1, 1, 2, 2], np.int32)
    positions = np.array([0, 1, 3, 4, 0, 9, 0, 1])

    assert places.holds(files, positions).tolist() == [0, 1, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("rows_at_a_time", [4, 1000])
def test_every_row_goes_to_the_partition_of_its_hash(monkeypatch, count, rows_at_a_time):
    monkeypatch.setattr(table_exchange, "_ROWS_AT_A_TIME", rows_at_a_time)
    hashes = [(7 * n) % 11 for n in range(40)]
    with open_exchange(None, Settings()) as exchange:
        parts = Partitions(exchange, "part", column="hash", count=count)
        for start in range(0, 40, 5):
            some = range(start, start + 5)
            parts.add(
                pa.table({"hash": pa.array(hashes[start : start + 5], pa.uint64()), "n": some})
            )
        pieces = parts.close()
        found = {}
        for target, key, rows in pieces:
            [table] = exchange.get([key])
            assert table.num_rows == rows
            found.setdefault(target, []).extend(table["n"].to_pylist())

    assert found == {t: [n for n in range(40) if hashes[n] % count == t] for t in range(count)}


def test_a_split_digest_counts_chosen_rows_once_more():
    rows = pa.record_batch({"a": list(range(10)), "b": [str(n) for n in range(10)]})
    chosen = np.array([0, 3, 4, 9])
    with SplitDigester(rows.schema, chosen=chosen) as split, Digester(rows.schema) as alone:
        for start in range(0, 10, 4):
            split.add(rows.slice(start, 4))
        alone.add(rows.take(pa.array(chosen)))

        assert split.part.result() == alone.result()
        assert split.result().rows == 10


def test_another_attempt_at_a_task_does_not_touch_what_the_first_one_left(tmp_path):
    first, second = (pa.table({"hash": pa.array([number], pa.uint64())}) for number in (1, 2))
    run = Run.start(open_store(tmp_path), {})
    for ledger in (None, run):
        with open_exchange(ledger, Settings()) as exchange:
            left = [Partitions(exchange, "a", column="hash", count=1) for _ in range(2)]
            for partitions, rows in zip(left, (first, second), strict=True):
                partitions.add(rows)
            [(_, key, _)] = left[0].close()
            left[1].close()

            assert list(exchange.get([key])) == [first]
