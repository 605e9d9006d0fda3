"""Many threads at one hot table, held against a model.

Changes are numbered in the order in which they count. So the model is known at every number, and
so is what each snapshot must have shown, whoever flushed, compacted or restarted meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from lakehand.errors import CommitConflictError
from support.hot_tables import cold_pairs, hot_table, pairs, rows

KEYS = 60
#: What a life is to see at least, however busy the machine is.
ENOUGH = {"write": 30, "look": 6, "flush": 3}
LONGEST_SECONDS = 120


@dataclass
class Diary:
    """What was acknowledged, and what was seen."""

    #: Sequence, then the keys that it changed and their value; None: they were deleted.
    changes: list[tuple[int, list[int], str | None]] = field(default_factory=list)
    #: Sequence of a snapshot, where it was restricted to, and its rows.
    sights: list[tuple[int, int | None, list[tuple[int, str]]]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class Crowd:
    """Threads that do what they do until they are told to stop."""

    def __init__(self, hot, diary: Diary, seed: int) -> None:
        self._hot, self._diary, self._seed = hot, diary, seed
        self._is_over = threading.Event()

    def run(self, seconds: float) -> None:
        """Let all threads work for so long, and longer on a busy machine."""
        jobs = [self.write, self.write, self.write, self.look, self.look, self.flush, self.tidy]
        threads = [
            threading.Thread(target=self._loop, args=(job, random.Random(f"{self._seed}-{n}")))
            for n, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        started = time.monotonic()
        wanted = {name: self._diary.counts.get(name, 0) + few for name, few in ENOUGH.items()}
        while not self._is_over.wait(0.05):
            has_enough = all(self._diary.counts.get(n, 0) >= wanted[n] for n in wanted)
            passed = time.monotonic() - started
            if (has_enough and passed >= seconds) or passed >= LONGEST_SECONDS:
                break
        self._is_over.set()
        for thread in threads:
            thread.join()
        if self._diary.failures:
            raise self._diary.failures[0]

    def _loop(self, job, chance: random.Random) -> None:
        while not self._is_over.is_set():
            try:
                job(chance)
            except Exception as error:  # noqa: BLE001  raised by `run`
                self._diary.failures.append(error)
                self._is_over.set()

    def write(self, chance: random.Random) -> None:
        keys = chance.sample(range(KEYS), chance.randint(1, 5))
        if chance.random() < 0.3:
            self._diary.changes.append((self._hot.delete(keys), keys, None))
        else:
            value = f"{chance.random():.9f}"
            self._diary.changes.append((self._hot.upsert(rows(keys, value)), keys, value))
        self._diary.count("write")

    def look(self, chance: random.Random) -> None:
        snapshot = self._hot.snapshot()
        time.sleep(chance.random() / 50)
        if chance.random() < 0.5:
            key = chance.randrange(KEYS)
            self._diary.sights.append((snapshot.sequence, key, pairs(snapshot.read(key=key))))
        else:
            self._diary.sights.append((snapshot.sequence, None, pairs(snapshot.read())))
        self._diary.count("look")

    def flush(self, chance: random.Random) -> None:
        time.sleep(chance.random() / 10)
        self._hot.flush()
        self._diary.count("flush")

    def tidy(self, chance: random.Random) -> None:
        time.sleep(chance.random() / 2)
        if chance.random() < 0.6:
            self._hot.merge_changes()
        else:
            try:
                self._hot.compact(min_files=2)
            except CommitConflictError:  # a flush has changed the same files meanwhile
                self._diary.count("overtaken")
            else:
                self._diary.count("compact")


def check(diary: Diary) -> dict[int, str]:
    """Hold everything that was seen against the model; return what is there in the end."""
    changes = sorted(diary.changes, key=lambda change: change[0])
    numbers = [sequence for sequence, _, _ in changes]
    assert numbers == list(range(1, len(changes) + 1)), "a number was given twice, or lost"
    current: dict[int, str] = {}
    done = 0
    for sequence, key, seen in sorted(diary.sights, key=lambda sight: sight[0]):
        apply(changes[done:sequence], current)
        done = sequence
        expected = current
        if key is not None:
            expected = {key: current[key]} if key in current else {}
        assert seen == sorted(expected.items()), f"at {sequence}, key {key}"
    apply(changes[done:], current)
    return current


def apply(changes, rows: dict[int, str]) -> None:
    for _, keys, value in changes:
        for key in keys:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value


def live(folder, *, lives: int, seconds: float, seed: int) -> Diary:
    diary, chance = Diary(), random.Random(seed)
    for life in range(lives):
        with ExitStack() as stack:
            hot = stack.enter_context(
                hot_table(
                    folder,
                    key=["id"],
                    hot_flush_rows=chance.choice([200, 100_000]),
                    hot_delta_entries=chance.choice([20, 10_000]),
                    hot_refresh_interval=chance.choice(["0s", "200ms"]),
                    hot_segment_bytes=8192,
                )
            )
            if diary.changes:
                assert pairs(hot.read()) == sorted(check(diary).items()), f"in life {life}"
            Crowd(hot, diary, seed * 100 + life).run(seconds)
            hot.close(flush=life == lives - 1)
    assert cold_pairs(folder) == sorted(check(diary).items())
    return diary


def test_many_threads_and_restarts_against_a_model(tmp_path):
    diary = live(tmp_path, lives=2, seconds=2, seed=1)

    assert all(diary.counts[name] >= 2 * few for name, few in ENOUGH.items())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 10))
def test_many_threads_and_restarts_for_long(tmp_path, seed):
    diary = live(tmp_path, lives=6, seconds=10, seed=seed)

    assert diary.counts["compact"] + diary.counts.get("overtaken", 0) > 3
