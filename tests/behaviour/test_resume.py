"""A compaction goes on where a dead one stopped, and only with what still fits."""

from __future__ import annotations

import os

import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

from lakehand.observe.steps import Step
from lakehand.rewrite.prepare import Request
from lakehand.rewrite.run import compact
from lakehand.runs import Run, list_runs
from lakehand.settings import Settings
from support.compactions import (
    CLUSTER,
    COMPACT,
    Rewrite,
    compact_inline,
    leave_dead_run,
    open_table,
)
from support.crash import run_and_kill
from support.rows import assert_same_rows, lakehand_rows
from support.small_tables import commit_by_hand, make_table, read_sorted, rows


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


def outputs_of(run):
    return {file.path for result in run.results() for file in result.outputs}


def live_files(place):
    return set(open_table(str(place)).snapshot().files["path"].to_pylist())


def data_files(place):
    paths = (path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path.relative_to(place).as_posix() for path in paths}


def finish(place, **settings):
    """Run the next compaction, which takes the dead one for dead at once."""
    report = compact_inline(str(place), "0s", **settings)
    assert list_runs(open_table(str(place)).store) == []
    return report


def test_what_a_dead_run_has_proved_is_committed_and_only_the_rest_is_rewritten(place):
    before, seen = read_sorted(place), lakehand_rows(place)
    outputs = outputs_of(leave_dead_run(place))

    report = finish(place)

    assert (report.groups.planned, report.groups.committed, report.groups.adopted) == (2, 2, 1)
    assert (report.files_before, report.files_after) == (12, 2)
    assert outputs < live_files(place)
    assert report.proof.rows == report.rows_written == 60
    assert read_sorted(place).equals(before)
    assert_same_rows(lakehand_rows(place), seen)


def test_a_run_may_have_nothing_to_do_but_to_commit_what_another_did(place):
    before = read_sorted(place)
    outputs = outputs_of(leave_dead_run(place, groups=2))

    report = finish(place)

    assert (report.groups.adopted, report.read_ms, report.write_ms) == (2, 0.0, 0.0)
    assert live_files(place) == outputs
    assert read_sorted(place).equals(before)


def test_files_that_were_added_since_are_planned_beside_what_is_adopted(place):
    outputs = outputs_of(leave_dead_run(place))
    for start in range(100, 180, 20):
        write_deltalake(str(place), rows(start, 20), mode="append")
    before = read_sorted(place)

    report = finish(place)

    assert (report.groups.adopted, report.groups.committed) == (1, 3)
    assert outputs < live_files(place)
    assert len(live_files(place)) == 3
    assert read_sorted(place).equals(before)


def test_results_go_on_over_two_deaths(place):
    before = read_sorted(place)
    outputs = outputs_of(leave_dead_run(place))
    heir = leave_dead_run(place)

    report = finish(place)

    assert report.groups.adopted == 1
    assert live_files(place) >= outputs or live_files(place) >= outputs_of(heir)
    assert data_files(place) - live_files(place) == {
        path for path in data_files(place) if "lakehand" not in path
    }
    assert read_sorted(place).equals(before)


def assert_done_anew(place, outputs, report, before):
    """The dead run's outputs are gone, and the job was done without them."""
    assert report.groups.adopted == 0
    assert outputs.isdisjoint(data_files(place))
    assert len(live_files(place)) == 2
    assert read_sorted(place).equals(before)


def set_property(place, name, value):
    DeltaRsTable(str(place)).alter.set_table_properties({name: value}, raise_if_not_exists=False)


@pytest.mark.parametrize("name", ["delta.parquet.compression.codec", "delta.appendOnly"])
def test_nothing_is_adopted_once_a_property_has_changed(place, name):
    before, outputs = read_sorted(place), outputs_of(leave_dead_run(place))
    set_property(place, name, "zstd" if "codec" in name else "false")

    assert_done_anew(place, outputs, finish(place), before)


def test_nothing_is_adopted_once_the_protocol_has_changed(place):
    before, outputs = read_sorted(place), outputs_of(leave_dead_run(place))
    commit_by_hand(place, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}})

    assert_done_anew(place, outputs, finish(place), before)


@pytest.mark.parametrize("other", [{"prove": "counts"}, {"target_file_bytes": "1MiB"}], ids=str)
def test_nothing_is_adopted_that_was_made_for_another_size_or_with_a_weaker_proof(place, other):
    before, outputs = read_sorted(place), outputs_of(leave_dead_run(place, **other))

    assert_done_anew(place, outputs, finish(place), before)


BY_AMOUNT = Request(operation="cluster", by="amount", curve="linear")
#: What died, and what is asked for instead.
OTHERS = {
    "other columns": (CLUSTER, {"by": "id, amount", "curve": "hilbert"}),
    "another curve": (CLUSTER, {"by": "amount, id", "curve": "zorder"}),
    "another direction": (Rewrite("by-amount", BY_AMOUNT), {"by": "amount DESC"}),
    "all of it": (CLUSTER, {"by": "amount, id", "curve": "hilbert", "full": True}),
    "no order": (CLUSTER, None),
    "an order": (COMPACT, {"by": "amount, id", "curve": "hilbert"}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_rows_in_another_order_are_not_adopted(place, other):
    dead, asked = OTHERS[other]
    leave_dead_run(place, rewrite=dead)

    assert_not_adopted(place, asked)


@pytest.mark.parametrize("other", ["other columns", "another curve"])
def test_nor_are_they_from_a_run_that_was_killed_between_its_batches(place, other):
    dead, asked = OTHERS[other]
    run_and_kill(Step.TASK_RECORDED, rewrite_singly, dead, str(place), occurrence=2)

    assert_not_adopted(place, asked)


def rewrite_singly(rewrite, path):
    rewrite(path, commit_every_groups=1)


def assert_not_adopted(place, asked):
    before = read_sorted(place)
    store = open_table(str(place)).store
    (run,) = (Run(store=store, id=name) for name in list_runs(store))
    proved = outputs_of(run) - {path for fate in run.fates() for path in fate.outputs}
    assert proved
    wanted = Rewrite("", Request(operation="cluster", **asked)) if asked else COMPACT

    report = wanted(place, "0s")

    assert (report.outcome, report.groups.adopted) == ("committed", 0)
    assert proved.isdisjoint(live_files(place) | data_files(place))
    assert read_sorted(place).equals(before)
    assert list_runs(store) == []


def test_a_group_of_which_a_file_was_rewritten_meanwhile_is_done_anew(place):
    outputs = outputs_of(leave_dead_run(place, groups=2))
    DeltaRsTable(str(place)).delete("id = 4")
    before = read_sorted(place)

    report = finish(place)

    assert report.groups.adopted == 1
    assert len(outputs & live_files(place)) == 1
    assert outputs & data_files(place) == outputs & live_files(place)
    assert read_sorted(place).equals(before)


@pytest.mark.parametrize("damage", ["truncated", "deleted", "written again"])
def test_an_output_that_is_not_as_it_was_proved_is_not_adopted(place, damage):
    before, run = read_sorted(place), leave_dead_run(place)
    (output,) = outputs_of(run)
    if damage == "deleted":
        (place / output).unlink()
    elif damage == "truncated":
        os.truncate(place / output, 100)
    else:
        data = (place / output).read_bytes()
        (place / output).write_bytes(data)

    assert_done_anew(place, {output}, finish(place), before)


def test_a_run_that_is_alive_keeps_its_results(place):
    run = leave_dead_run(place)
    outputs = outputs_of(run)

    report = compact(open_table(str(place)), settings=Settings({"engine": "local"}, environment={}))

    assert (report.groups.adopted, report.groups.committed) == (0, 2)
    assert outputs < data_files(place)
    assert list_runs(open_table(str(place)).store) == [run.id]
