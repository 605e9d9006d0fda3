"""A hot table that is killed anywhere has all that it acknowledged, and everything once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lakehand
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.hot_tables import (
    SCHEMA,
    acknowledge,
    acknowledged,
    cold_pairs,
    hot_table,
    pairs,
    rows,
    segments,
)

#: All that a flush goes through, in its order.
FLUSH_STEPS = (
    Step.HOT_FROZEN,
    Step.SINK_WRITING,
    Step.SINK_STAGED,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.SINK_COMMITTED,
    Step.HOT_FLUSHED,
    Step.HOT_DROPPING,
)
CHANGES = 8


def change_and_flush(folder: str, first: int) -> None:
    """Append two rows a change, and flush after every third; say what was acknowledged."""
    with hot_table(folder, hot_segment_bytes=4096) as hot:
        for number in range(first, first + CHANGES):
            hot.append(rows([number, number], "a" * 300))
            acknowledge(folder, number)
            if number % 3 == 2:
                hot.flush()


def numbers(found: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in found]


def expected(folder, found) -> list[int]:
    """Return what must be there: all that was acknowledged, and the change under way or not."""
    kept = acknowledged(folder)
    following = kept[-1] + 1 if kept else 0
    if following in found:
        kept.append(following)
    return sorted(kept * 2)


@kill_at(Step.HOT_LOGGED, *FLUSH_STEPS)
def test_a_killed_hot_table_has_everything_once(tmp_path, step):
    lakehand.create_table(tmp_path / "table", SCHEMA)
    run_and_kill(step, change_and_flush, str(tmp_path), 0, occurrence=2)
    assert acknowledged(tmp_path)

    with hot_table(tmp_path) as hot:
        found = numbers(pairs(hot.read()))
        assert found == expected(tmp_path, found)
        first = hot.snapshot().sequence
        hot.append(rows([1000, 1000]))
        hot.flush()
        assert numbers(pairs(hot.read())) == [*found, 1000, 1000]
        assert hot.storage_stats().hot_rows == 0
        assert hot.snapshot().sequence > first
    assert numbers(cold_pairs(tmp_path)) == [*found, 1000, 1000]
    assert len(segments(tmp_path)) == 1


@kill_at(Step.HOT_FLUSHED)
def test_changes_after_a_frozen_epoch_are_not_dropped_with_it(tmp_path, step):
    """The log of the next epoch begins before the commit, so a commit says nothing about it."""
    lakehand.create_table(tmp_path / "table", SCHEMA)
    run_and_kill(step, flush_between_changes, str(tmp_path))

    with hot_table(tmp_path) as hot:
        assert numbers(pairs(hot.read())) == [1, 2]
    assert numbers(cold_pairs(tmp_path)) == [1, 2]


def flush_between_changes(folder: str) -> None:
    """Append while a flush is under way."""
    from lakehand.observe import steps

    with hot_table(folder) as hot:
        hot.append(rows([1]))
        die = steps._listener
        seen: list[Step] = []

        def listener(step: Step) -> None:
            if step is Step.SINK_STAGED and not seen:
                seen.append(step)
                hot.append(rows([2]))
            die(step)

        steps.listen(listener)
        hot.flush()


def change_by_key(folder: str) -> None:
    """Replace rows and delete one by turns, and flush in between."""
    with hot_table(folder, key=["id"]) as hot:
        for number in range(CHANGES):
            hot.upsert(rows(range(number, number + 3), str(number)))
            acknowledge(folder, 2 * number)
            hot.delete([number])
            acknowledge(folder, 2 * number + 1)
            if number % 4 == 3:
                hot.flush()


def state_after(count: int) -> list[tuple[int, str]]:
    """Return what the table holds after so many changes."""
    state: dict[int, str] = {}
    for change in range(count):
        number, is_deletion = divmod(change, 2)
        if is_deletion:
            del state[number]
        else:
            state |= dict.fromkeys(range(number, number + 3), str(number))
    return sorted(state.items())


def check_killed_by_key(folder, step, occurrence):
    lakehand.create_table(folder / "table", SCHEMA)
    run_and_kill(step, change_by_key, str(folder), occurrence=occurrence)
    kept = len(acknowledged(folder))
    assert kept >= 8

    with hot_table(folder, key=["id"]) as hot:
        found = pairs(hot.read())
        assert found in (state_after(kept), state_after(kept + 1))
        hot.flush()
        assert pairs(hot.read()) == found
    assert cold_pairs(folder) == found


@kill_at(Step.HOT_FROZEN, Step.COMMIT_PUT, Step.HOT_FLUSHED)
def test_a_killed_hot_table_has_the_newest_row_of_each_key(tmp_path, step):
    check_killed_by_key(tmp_path, step, occurrence=2)


#: Where the second time is not in the second flush.
OCCURRENCES = {
    Step.HOT_LOGGED: 10,
    Step.SINK_WRITING: 3,
    Step.TASK_WRITTEN: 1,
    Step.TASK_PROVED: 1,
}


@pytest.mark.soak
@kill_at(
    Step.HOT_LOGGED,
    Step.SINK_WRITING,
    Step.SINK_STAGED,
    Step.ROWS_ARRIVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.RUN_STARTED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
    Step.COMMIT_CONFIRMED,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
    Step.SINK_COMMITTED,
    Step.HOT_DROPPING,
)
def test_every_other_step_of_a_flush_by_key(tmp_path, step):
    check_killed_by_key(tmp_path, step, occurrence=OCCURRENCES.get(step, 2))


def test_one_kill_after_the_other(tmp_path):
    """A table that dies in every life goes on in the next one, and ends with all rows once."""
    lakehand.create_table(tmp_path / "table", SCHEMA)
    for number, step in enumerate([Step.COMMIT_PUT, Step.HOT_FROZEN]):
        run_and_kill(step, change_and_flush, str(tmp_path), 100 * number)

    with hot_table(tmp_path):
        pass
    found = numbers(cold_pairs(tmp_path))
    assert {found.count(number) for number in acknowledged(tmp_path)} == {2}


def append_for_ever(folder: str) -> None:
    """Append from four threads, and say of each row when it was acknowledged."""
    descriptor = os.open(f"{folder}/acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with hot_table(folder, hot_flush_rows=40, hot_segment_bytes=4096) as hot:

        def append(first: int) -> None:
            for number in itertools.count(first, 4):
                hot.append(rows([number]))
                os.write(descriptor, f"{number}\n".encode())

        threads = [threading.Thread(target=append, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("seconds", [0.3, 0.9])
def test_a_process_killed_at_any_moment_loses_nothing(tmp_path, seconds):
    lakehand.create_table(tmp_path / "table", SCHEMA)
    program = f"from test_hot_kills import append_for_ever; append_for_ever({str(tmp_path)!r})"
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        deadline = time.monotonic() + 120
        while len(acknowledged(tmp_path)) < 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(seconds)
        process.kill()

    with hot_table(tmp_path) as hot:
        found = numbers(pairs(hot.read()))
    kept = acknowledged(tmp_path)
    assert len(kept) >= 20
    assert set(kept) <= set(found)
    assert len(found) == len(set(found)) <= len(kept) + 4
    assert numbers(cold_pairs(tmp_path)) == found
