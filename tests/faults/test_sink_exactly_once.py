"""Two writers that are killed at random, and a compaction beside them: each row is there once."""

from __future__ import annotations

import pytest

import lakehand
from support.killed_writers import compact_now, run_mortal_writers
from support.sinks import expected_ids, ids_in

EPOCHS = 3
WRITERS = ("writer-1", "writer-2")


def assert_every_epoch_is_there_once(place, epochs):
    assert ids_in(place) == expected_ids(epochs, *WRITERS)
    assert lakehand.open_table(place).transactions() == dict.fromkeys(WRITERS, epochs)


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_there_once_whenever_their_writers_are_killed(tmp_path, seed):
    options = {"partition_by": "part"} if seed % 2 else {}

    run_mortal_writers(
        tmp_path, seed, epochs=EPOCHS, beside=lambda: compact_now(tmp_path), **options
    )

    assert_every_epoch_is_there_once(tmp_path, EPOCHS)


def test_delta_spark_reads_the_same_rows(oracle, tmp_path):
    lives = run_mortal_writers(tmp_path, 77, epochs=EPOCHS, beside=lambda: compact_now(tmp_path))

    rows = oracle.rows(tmp_path)
    assert lives > len(WRITERS)
    assert len(rows) == len(expected_ids(EPOCHS, *WRITERS)) == len(set(rows))
    assert_every_epoch_is_there_once(tmp_path, EPOCHS)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_rows_are_there_once_in_hundreds_of_runs(tmp_path, seed):
    run_mortal_writers(
        tmp_path, seed, epochs=20, beside=lambda: compact_now(tmp_path), partition_by="part"
    )

    assert_every_epoch_is_there_once(tmp_path, 20)
