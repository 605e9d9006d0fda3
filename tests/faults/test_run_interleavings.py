"""Runs that take each other over, stopped, continued and killed between any two requests."""

from __future__ import annotations

import itertools
import random
import uuid
from contextlib import contextmanager
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.errors import CommitConflictError, RunTakenError
from lakehand.model.work import Change, GroupResult, Replacement, StagedFile
from lakehand.observe.clock import ManualClock
from lakehand.runs import Run, commit_results, list_runs, resume, sweep
from lakehand.storage import MemoryStore
from support.ledgers import LedgerTable
from support.stepped_threads import Actor, TurnTaking

#: Everybody takes everybody for dead, all the time.
AT_ONCE = timedelta(seconds=-1)
CLOCK = ManualClock()
_numbers = itertools.count()

actors = st.integers(0, 3)
#: Who moves next, and how many requests far.
schedules = st.lists(st.tuples(actors, st.integers(1, 30)), min_size=4, max_size=60)
seeds = st.integers(0, 2**32)


def new_table():
    store = MemoryStore(f"interleavings-{next(_numbers)}", clock=CLOCK)
    return LedgerTable.with_files(store, "a", "b", "c", "d")


def rewrite(run, group):
    """Do what a task does: the output holds what its input held."""
    stem = run.reserve(group.id, directory="")
    data = b"".join(run.store.get(file.path) for file in group.inputs)
    run.store.put(f"{stem}-0", data)
    output = StagedFile(path=f"{stem}-0", bytes=len(data), rows=1)
    return run.record(result_of(group, stem, output), group=group)


def result_of(group, stem, output):
    return GroupResult(group=group.id, attempt=stem, outputs=(output,))


def compact(actor, table):
    """Adopt what others left, rewrite two more files and commit all of it."""
    table = TurnTaking(table, actor)
    snapshot = table.snapshot()
    run = Run.start(table.store, {}, snapshot=snapshot, clock=CLOCK)
    adopted = resume(run, table, snapshot, wanted=lambda plan: True, takeover_after=AT_ONCE)
    taken = {file.path for item in adopted for file in item.group.inputs}
    free = [path for path in snapshot.files["path"].to_pylist() if path not in taken][:2]
    groups = {item.group.id: item.group for item in adopted}
    for group in table.groups_from(len(adopted), *free):
        groups[group.id] = group
    results = [item.result for item in adopted]
    results += [rewrite(run, group) for number, group in groups.items() if number >= len(adopted)]
    replacements = tuple(
        Replacement(group=item.group, removes=groups[item.group].inputs, adds=item.outputs)
        for item in results
    )
    change = Change(
        kind="rewrite",
        base_version=snapshot.version,
        operation="OPTIMIZE",
        replacements=replacements,
    )
    try:
        commit_results(run, table, change, results=results)
    except (RunTakenError, CommitConflictError):
        pass
    finally:
        run.finish()


def sweep_once(actor, table):
    sweep(TurnTaking(table, actor), clock=CLOCK, takeover_after=AT_ONCE)


def rows_of(table):
    """Read every live file; one that was deleted raises."""
    return sorted(letter for path in table.live for letter in table.store.get(path).decode())


def play(table, schedule, *, killed, seed):
    """Let the actors move as `schedule` says; then some end, and the others are dead for ever."""
    with replaced_ids(seed):
        return _play(table, schedule, killed=killed)


@contextmanager
def replaced_ids(seed):
    """Make the ids of runs follow from the seed: in their order they are swept."""
    numbers, original = random.Random(seed), uuid.uuid4
    uuid.uuid4 = lambda: uuid.UUID(int=numbers.getrandbits(128))
    try:
        yield
    finally:
        uuid.uuid4 = original


def _play(table, schedule, *, killed):
    cast = [Actor(lambda actor: compact(actor, table)) for _ in range(3)]
    cast.append(Actor(lambda actor: sweep_once(actor, table)))
    try:
        for number, turns in schedule:
            for _ in range(turns):
                cast[number].take_turn()
            assert rows_of(table) == ["a", "b", "c", "d"]
        for number, actor in enumerate(cast):
            if number not in killed:
                actor.finish()
    finally:
        for actor in cast:
            actor.kill()
    return [actor.error for actor in cast if actor.error is not None]


def files_of(table):
    return {info.key for info in table.store.list() if not info.key.startswith("_lakehand")}


@settings(max_examples=150, deadline=None)
@given(schedule=schedules, killed=st.sets(actors), seed=seeds)
def test_no_interleaving_loses_a_row_or_a_file_of_any_version(schedule, killed, seed):
    table = new_table()

    errors = play(table, schedule, killed=killed, seed=seed)

    assert rows_of(table) == ["a", "b", "c", "d"]
    assert table.ever_live <= files_of(table)
    assert errors == []


@settings(max_examples=100, deadline=None)
@given(schedule=schedules, seed=seeds)
def test_two_sweeps_leave_no_file_that_no_version_refers_to(schedule, seed):
    table = new_table()
    play(table, schedule, killed=(), seed=seed)

    for _ in range(2):
        report = sweep(table, clock=CLOCK, takeover_after=AT_ONCE)

    assert files_of(table) == table.ever_live
    assert (report.kept, list_runs(table.store)) == ({}, [])
