"""Two runs that want to rewrite the same files at the same time do the work once."""

from __future__ import annotations

import json
import threading

import pytest

import lakehand
from lakehand.errors import ReplanError
from lakehand.observe.steps import Step
from lakehand.rewrite import run as rewrite_run
from lakehand.rewrite.prepare import Request
from lakehand.runs import Run, list_runs, living_runs
from lakehand.runs.operation import Call
from lakehand.settings import Settings
from support.compactions import COMPACT, EVERY_REWRITE, compact_inline, open_table, tasks_inline
from support.crash import run_and_kill
from support.pausing import PausedProcess
from support.small_tables import make_table, read_sorted

#: The first run has planned and begun, and rewritten nothing yet.
BEGUN = [(Step.TASK_RESERVED, 1)]


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@EVERY_REWRITE
def test_a_second_run_leaves_the_files_to_the_one_that_is_at_work(place, rewrite):
    rows = read_sorted(place)
    with PausedProcess(BEGUN, rewrite, str(place)) as first:
        first.wait_until_stopped()
        (run,) = list_runs(open_table(str(place)).store)
        report = rewrite(str(place))
        assert first.end() is None
    assert (report.outcome, report.skip_reason) == ("nothing_to_do", "being_rewritten")
    assert report.left_to_runs == (run,)
    assert open_table(str(place)).snapshot().version == 6
    assert read_sorted(place) == rows


def test_maintain_leaves_the_files_to_the_run_that_is_at_work(place):
    with PausedProcess(BEGUN, compact_inline, str(place)) as first:
        first.wait_until_stopped()
        (run,) = list_runs(open_table(str(place)).store)
        report = lakehand.open_table(place).maintain(min_files=2, quiet_period="0s")
        assert first.end() is None
    step = report.steps[0]
    assert (step.outcome, step.errors) == ("nothing_to_do", ())
    assert run in step.reason


def test_a_second_deduplication_is_left_to_the_one_that_is_at_work(place):
    other = make_table(place.parent / "other")
    for path in (place, other):
        lakehand.open_table(path).append(read_sorted(path))
    with PausedProcess([(Step.RUN_COMMITTING, 1)], deduplicate, str(place), ["id"]) as first:
        first.wait_until_stopped()
        (run,) = list_runs(open_table(str(place)).store)
        report = deduplicate(str(place), ["id"])
        assert first.end() is None
    assert (report.outcome, report.left_to_runs) == ("nothing_to_do", (run,))
    assert list_runs(open_table(str(place)).store) == []
    assert read_sorted(place).num_rows == read_sorted(other).num_rows / 2


def deduplicate(place, key):
    return lakehand.open_table(place).deduplicate(key=key, engine="local")


def test_files_that_no_run_has_reserved_are_rewritten(place):
    with PausedProcess(BEGUN, compact_inline, str(place)) as first:
        first.wait_until_stopped()
        table = lakehand.open_table(place)
        for number in range(4):
            table.append(read_sorted(place).slice(number, 1))
        rows = read_sorted(place)
        report = compact_inline(str(place))
        assert first.end() is None
    assert (report.outcome, report.files_removed) == ("committed", 4)
    assert report.files_left["being_rewritten"] == 12
    assert read_sorted(place) == rows


def test_a_run_that_was_killed_holds_nobody_up(place):
    rows = read_sorted(place)
    run_and_kill(Step.TASK_RESERVED, compact_inline, str(place))
    assert compact_inline(str(place)).outcome == "committed"
    assert read_sorted(place) == rows


def test_a_run_that_is_silent_holds_nobody_up(place):
    with PausedProcess(BEGUN, compact_inline, str(place)) as first:
        first.wait_until_stopped()
        assert compact_inline(str(place), "0s").outcome == "committed"


@pytest.mark.parametrize("pid", [2**31, 10**30, -1, 0])
def test_a_number_that_no_process_has_says_nothing_of_a_run(place, pid):
    run = Run.start(open_table(str(place)).store, {}, inputs=["a"])
    change(run, "run.json", pid=pid)
    assert [found.id for found in living(run)] == [run.id]


def test_a_sign_of_life_from_the_future_holds_nobody_up(place):
    run = Run.start(open_table(str(place)).store, {}, inputs=["a"])
    change(run, "run.json", started_at="2096-10-02T07:06:40Z")
    assert living(run) == []


def change(run, name, **members):
    document = json.loads(run.store.get(run.key(name)))
    run.store.put(run.key(name), json.dumps({**document, **members}).encode())


def living(run):
    takeover_after = Settings({}, environment={})["takeover_after"]
    return living_runs(run.store, clock=run.clock, takeover_after=takeover_after)


def test_a_stored_plan_is_not_carried_out_while_another_run_has_its_files(place):
    plan = lakehand.open_table(place).plan()
    with PausedProcess(BEGUN, compact_inline, str(place)) as first:
        first.wait_until_stopped()
        with pytest.raises(ReplanError, match="being rewritten by run"):
            lakehand.open_table(place).compact(plan=plan, engine="local")
        assert first.end() is None


def test_of_two_that_planned_at_the_same_moment_the_later_one_leaves_the_files(place):
    rows, settings = read_sorted(place), Settings({}, environment={})
    planned = [
        rewrite_run.make_plan(open_table(str(place)), settings, COMPACT.request) for _ in range(2)
    ]
    first = Run.start(planned[0].table.store, {}, inputs=planned[0].plan.paths)
    with tasks_inline():
        call = Call(operation="compact", table=planned[1].table, settings=settings)
        plan, done = rewrite_run._carry_out(planned[1], call)
    assert done is None
    assert plan.left_to_runs == (first.id,)
    assert list_runs(first.store) == [first.id]
    assert read_sorted(place) == rows


def test_the_earlier_one_keeps_its_files_although_it_sees_the_later_one(place):
    settings = Settings({}, environment={})
    planned = rewrite_run.make_plan(open_table(str(place)), settings, COMPACT.request)
    own = Run.start(planned.table.store, {}, inputs=planned.plan.paths)
    later = Run.start(planned.table.store, {}, inputs=planned.plan.paths)
    assert rewrite_run.yield_to_earlier(planned, own) is planned
    assert rewrite_run.yield_to_earlier(planned, later).plan.groups == ()


@pytest.mark.parametrize("attempt", range(3))
def test_runs_that_begin_at_once_lose_nothing_and_fail_in_no_new_way(place, attempt):
    rows, ended, start = read_sorted(place), [], threading.Barrier(3)

    def run():
        start.wait()
        try:
            ended.append(lakehand.open_table(place).compact(engine="local").outcome)
        except lakehand.LakehandError as error:
            ended.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended.count("committed") >= 1
    assert set(ended) <= {"committed", "nothing_to_do", "CommitConflictError"}
    assert read_sorted(place) == rows
    assert list_runs(open_table(str(place)).store) == []


def test_what_a_run_has_reserved_is_told_while_it_lives_only(place):
    table = open_table(str(place))
    run = Run.start(table.store, {"operation": "compact"}, inputs=["a", "b"])
    settings = Settings({}, environment={})
    known = {"clock": run.clock, "takeover_after": settings["takeover_after"]}
    (found,) = living_runs(table.store, **known)
    assert (found.id, found.inputs) == (run.id, {"a", "b"})
    run.store.put(run.key("inputs.json"), b'{"paths": 5}')
    assert living_runs(table.store, **known) == []
    run.finish()
    assert living_runs(table.store, **known) == []
    assert not list(table.store.list("_lakehand/runs"))


def test_a_request_that_names_files_by_hand_leaves_them_too(place):
    with PausedProcess(BEGUN, compact_inline, str(place)) as first:
        first.wait_until_stopped()
        with tasks_inline():
            report = rewrite_run.compact(
                open_table(str(place)),
                settings=Settings({}, environment={}),
                request=Request(file_filter=lambda files: files["bytes"].to_numpy() > 0),
            )
        assert first.end() is None
    assert report.outcome == "nothing_to_do"
