"""What becomes of runs that died, on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lakehand.errors import RunTakenError
from lakehand.model.work import Change, GroupResult, Replacement
from lakehand.observe.clock import ManualClock
from lakehand.runs import Fate, Run, list_runs, resume, sweep
from lakehand.runs.adopt import ADOPTED_WITHIN
from lakehand.runs.ledger_records import put_fate
from lakehand.runs.sweep import FORGET_AFTER
from lakehand.storage import MemoryStore, open_store
from support.ledgers import LedgerTable, do_group, start_run, write_output

SILENCE = timedelta(minutes=3)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(request, clock):
    store = MemoryStore(request.node.nodeid.replace("/", "-"), clock=clock)
    return LedgerTable.with_files(store, "a", "b", "c")


@pytest.fixture
def dead(table, clock):
    """A run with one result, one unfinished attempt, and then silence."""
    run = start_run(table, table.groups("a", "b"), clock)
    do_group(run, table.groups("a", "b")[0])
    write_output(run, table.groups("a", "b")[1])
    clock.advance(SILENCE.total_seconds())
    return run


def files(table):
    return {info.key for info in table.store.list() if not info.key.startswith("_lakehand")}


def adopt_all(run, table):
    return resume(run, table, table.snapshot(), wanted=lambda plan: True)


def commit(table, run, *, group, result: GroupResult):
    """Do what the owner does after its fate: put the version."""
    item = Replacement(group=group.id, removes=group.inputs, adds=result.outputs)
    change = Change(kind="rewrite", base_version=0, operation="compact", replacements=(item,))
    fate = run.decide_fate([result], base_version=0)
    return table.commit(change, token=fate.token)


def test_files_of_a_dead_run_are_deleted_and_its_ledger_is_dropped(table, dead, clock):
    report = sweep(table, clock=clock)

    assert files(table) == {"a", "b", "c"}
    assert len(report.files_deleted) == 2
    assert report.dropped == [dead.id]
    assert list_runs(table.store) == []


def test_a_run_that_beats_is_left_alone(table, dead, clock):
    dead.beat()

    report = sweep(table, clock=clock)

    assert len(files(table)) == 5
    assert (report.dropped, report.kept) == ([], {})


def test_a_run_that_was_swept_may_no_longer_commit(table, dead, clock):
    sweep(table, clock=clock)

    with pytest.raises(RunTakenError):
        dead.decide_fate(dead.results(), base_version=0)


def test_a_run_that_was_taken_over_may_not_delete_either(table, dead, clock):
    heir = start_run(table, [], clock)
    adopted = adopt_all(heir, table)

    dead.finish()

    assert adopted[0].result.outputs[0].path in files(table)


def test_the_owner_that_decided_first_keeps_its_outputs(table, dead, clock):
    result = dead.results()[0]
    dead.decide_fate([result], base_version=0)

    report = sweep(table, clock=clock)

    assert files(table) == {"a", "b", "c", result.outputs[0].path}
    assert "did not land yet; its 1 files are left to vacuum" in report.kept[dead.id]


def test_an_owner_that_wakes_up_after_a_sweep_still_commits_what_it_decided(table, dead, clock):
    result = dead.results()[0]
    fate = dead.decide_fate([result], base_version=0)
    sweep(table, clock=clock)

    group = table.groups("a")[0]
    item = Replacement(group=0, removes=group.inputs, adds=result.outputs)
    change = Change(kind="rewrite", base_version=0, operation="compact", replacements=(item,))
    table.commit(change, token=fate.token)
    dead.finish()

    assert set(table.live) == {"b", "c", result.outputs[0].path}
    assert set(table.live) <= files(table)


def test_a_commit_that_landed_lets_the_ledger_go_and_keeps_the_files(table, dead, clock):
    result = dead.results()[0]
    commit(table, dead, group=table.groups("a")[0], result=result)

    report = sweep(table, clock=clock)

    assert report.dropped == [dead.id]
    assert files(table) == {"a", "b", "c", result.outputs[0].path}


def test_a_commit_that_its_owner_knew_lost_keeps_no_ledger(table, dead, clock):
    fate = dead.decide_fate([], base_version=0)
    dead.settle(fate, version=None)

    assert sweep(table, clock=clock).dropped == [dead.id]


def test_a_lost_commit_is_forgotten_in_the_end_and_its_files_stay(table, dead, clock):
    result = dead.results()[0]
    dead.decide_fate([result], base_version=0)
    sweep(table, clock=clock)
    clock.advance(FORGET_AFTER.total_seconds() + 1)

    report = sweep(table, clock=clock)

    assert report.dropped == [dead.id]
    assert result.outputs[0].path in files(table)


def test_a_run_that_died_while_it_finished_is_finished(table, dead, clock):
    dead.close()

    report = sweep(table, clock=clock)

    assert report.dropped == [dead.id]
    assert files(table) == {"a", "b", "c"}


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_ledger_that_contradicts_the_table_deletes_nothing(table, dead, clock, has_rows):
    path = dead.results()[0].outputs[0].path
    if has_rows:
        table.live[path] = table.live["a"]
    else:
        table.belongings.add(path)

    report = sweep(table, clock=clock)

    assert path in files(table)
    assert "the table refers to files" in report.kept[dead.id]


def test_the_heir_adopts_results_and_deletes_the_rest(table, dead, clock):
    path = dead.results()[0].outputs[0].path
    heir = start_run(table, [], clock)

    adopted = adopt_all(heir, table)

    assert [item.result.outputs[0].path for item in adopted] == [path]
    assert [item.group.inputs[0].path for item in adopted] == ["a"]
    assert heir.results() == [adopted[0].result]
    assert files(table) == {"a", "b", "c", path}
    assert list_runs(table.store) == [heir.id]


def test_adopted_groups_are_numbered_after_those_of_the_heir(table, dead, clock):
    heir = start_run(table, table.groups("c"), clock)

    adopted = resume(heir, table, table.snapshot(), wanted=lambda plan: True, first_group=5)

    assert [(item.group.id, item.result.group) for item in adopted] == [(5, 5)]


def test_a_result_whose_input_is_gone_is_not_adopted(table, dead, clock):
    del table.live["a"]
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []
    assert files(table) == {"a", "b", "c"}


def test_a_result_whose_input_lost_rows_since_is_not_adopted(table, dead, clock):
    table.live["a"] = replace(table.live["a"], deleted_rows=1)
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []


def test_a_result_for_another_state_of_the_table_is_not_adopted(table, dead, clock):
    table.properties["codec"] = "snappy"
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []


def test_a_result_whose_output_is_damaged_is_not_adopted(table, dead, clock):
    table.store.put(dead.results()[0].outputs[0].path, b"torn")
    table.store.put(dead.results()[0].outputs[0].path, b"to")
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []


def test_a_failed_group_is_not_adopted(table, clock):
    run = start_run(table, table.groups("a"), clock)
    run.record(GroupResult(group=0, attempt="x", outputs=(), failure={"code": "PROOF_FAILED"}))
    clock.advance(SILENCE.total_seconds())
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []


def test_work_of_another_kind_is_not_adopted(table, dead, clock):
    heir = start_run(table, [], clock)

    adopted = resume(
        heir, table, table.snapshot(), wanted=lambda plan: plan["operation"] == "cluster"
    )

    assert adopted == []


def test_of_two_dead_runs_with_the_same_input_one_is_adopted(table, clock):
    for _ in range(2):
        do_group(start_run(table, table.groups("a"), clock), table.groups("a")[0])
    clock.advance(SILENCE.total_seconds())
    heir = start_run(table, [], clock)

    adopted = adopt_all(heir, table)

    assert len(adopted) == 1
    assert files(table) == {"a", "b", "c", adopted[0].result.outputs[0].path}


def test_a_committed_batch_is_not_adopted_again(table, dead, clock):
    commit(table, dead, group=table.groups("a")[0], result=dead.results()[0])
    heir = start_run(table, [], clock)

    assert adopt_all(heir, table) == []
    assert set(table.live) <= files(table)


@pytest.mark.parametrize("parts", [1, 3])
def test_what_was_adopted_outlives_the_ledger_that_it_came_from(table, clock, parts):
    """A version that the heir made stays readable, although no longer the newest."""
    first, second = table.groups("a", "b")
    dead = start_run(table, [first, second], clock)
    results = [do_group(dead, first), do_group(dead, second, parts=parts)]
    dead.decide_fate(results[:1], base_version=0)  # and then it was killed
    clock.advance(SILENCE.total_seconds())
    heir = start_run(table, [], clock)
    (adopted,) = adopt_all(heir, table)
    commit(table, heir, group=adopted.group, result=adopted.result)
    heir.settle(heir.fates()[-1], version=1)
    heir.finish()
    assert list_runs(table.store) == [dead.id]

    for file in adopted.result.outputs:
        table.live.pop(file.path)  # somebody rewrote it
    clock.advance(SILENCE.total_seconds())
    report = sweep(table, clock=clock)

    assert report.files_deleted == []
    assert table.ever_live <= files(table)


def test_outputs_that_a_vacuum_may_soon_take_are_not_adopted(table, dead, clock):
    clock.advance(ADOPTED_WITHIN.total_seconds())

    assert adopt_all(start_run(table, [], clock), table) == []
    assert files(table) == {"a", "b", "c"}


def test_the_heir_of_an_heir_adopts_the_same_results(table, dead, clock):
    path = dead.results()[0].outputs[0].path
    adopt_all(start_run(table, [], clock), table)
    clock.advance(SILENCE.total_seconds())
    last = start_run(table, [], clock)

    adopted = adopt_all(last, table)

    assert [item.result.outputs[0].path for item in adopted] == [path]
    assert files(table) == {"a", "b", "c", path}
    assert list_runs(table.store) == [last.id]


def half_taken_over(table, dead, clock):
    """An heir that died right after it recorded what it adopts, before it cleaned up."""
    heir = start_run(table, [], clock)
    taken = Fate(kind="taken", batch=0, by=heir.id, at=clock.now())
    put_fate(table.store, dead.fate_key(0), taken)
    heir.record(dead.results()[0], group=table.groups("a")[0])
    clock.advance(SILENCE.total_seconds())
    return heir


def test_an_heir_that_died_half_way_is_inherited_from(table, dead, clock):
    path = dead.results()[0].outputs[0].path
    half_taken_over(table, dead, clock)
    last = start_run(table, [], clock)

    adopted = adopt_all(last, table)

    assert [item.result.outputs[0].path for item in adopted] == [path]
    assert files(table) == {"a", "b", "c", path}
    assert list_runs(table.store) == [last.id]


def test_an_heir_that_died_half_way_is_swept_with_the_run_it_took(table, dead, clock):
    half_taken_over(table, dead, clock)

    sweep(table, clock=clock)

    assert files(table) == {"a", "b", "c"}
    assert list_runs(table.store) == []


def test_a_run_is_left_to_the_heir_that_works_on_it(table, dead, clock):
    heir = half_taken_over(table, dead, clock)
    heir.beat()

    report = sweep(table, clock=clock)

    assert report.kept == {dead.id: f"it is being taken over by run {heir.id}"}
    assert len(files(table)) == 5


def test_what_a_vanished_sweep_had_taken_is_deleted(table, dead, clock):
    taken = Fate(kind="taken", batch=0, by="sweep-gone", at=clock.now())
    put_fate(table.store, dead.fate_key(0), taken)

    report = sweep(table, clock=clock)

    assert report.dropped == [dead.id]
    assert files(table) == {"a", "b", "c"}


def test_the_same_run_can_resume_again_after_an_interruption(table, dead, clock):
    heir = half_taken_over(table, dead, clock)
    heir.beat()

    adopted = adopt_all(heir, table)

    assert adopted == []
    assert heir.results()[0].outputs[0].path in files(table)
    assert list_runs(table.store) == [heir.id]


def test_remains_of_a_late_task_are_removed_once_they_are_quiet(table, clock):
    run = start_run(table, table.groups("a"), clock)
    run.finish()
    do_group(run, table.groups("a")[0])

    sweep(table, clock=clock)
    assert len(files(table)) == 4

    clock.advance(SILENCE.total_seconds())
    sweep(table, clock=clock)
    assert files(table) == {"a", "b", "c"}
    assert list_runs(table.store) == []


def test_what_a_killed_task_left_half_written_on_disk_is_deleted(tmp_path, clock):
    table = LedgerTable.with_files(open_store(tmp_path), "a")
    run = start_run(table, table.groups("a"), clock)
    half = table.store.open_writer(f"day=1/{run.reserve(0, directory='day=1')}-0.parquet")
    other = table.store.open_writer("day=1/other.parquet")
    clock.advance(SILENCE.total_seconds())

    assert len(list((tmp_path / "day=1").iterdir())) == 2
    sweep(table, clock=clock)

    assert not half.closed
    other.close()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a", "other.parquet"]


def test_an_owner_that_decides_while_it_is_being_taken_wins(table, dead, clock, monkeypatch):
    real_fates = Run.fates

    def decide_in_between(run):
        fates = real_fates(run)
        monkeypatch.setattr(Run, "fates", real_fates)
        dead.decide_fate(dead.results(), base_version=0)
        return fates

    monkeypatch.setattr(Run, "fates", decide_in_between)
    report = sweep(table, clock=clock)

    assert "came back to life" in report.kept[dead.id]
    assert len(files(table)) == 5
