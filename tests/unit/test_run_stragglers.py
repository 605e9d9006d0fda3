"""A task that writes on after its run has ended leaves no file that nobody knows of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.model.work import Change, Replacement
from lakehand.observe.clock import SystemClock
from lakehand.runs import commit_results, list_runs, sweep
from lakehand.storage import MemoryStore
from support.ledgers import LedgerTable, do_group, start_run, write_output

AT_ONCE = timedelta(0)


@pytest.fixture
def table(request):
    return LedgerTable.with_files(MemoryStore(request.node.name), "a", "b")


def write_late(table, *, expected):
    """Let a task reserve its name, the run end, and the task write its file after that."""
    run = start_run(table, table.groups("a"), SystemClock())
    stem = run.reserve(0, directory="")
    if expected:
        run.expect_stragglers()
    run.finish()
    table.store.put(f"{stem}-0.parquet", b"late")
    return f"{stem}-0.parquet"


def test_what_an_expected_straggler_wrote_is_found_by_the_next_sweep(table):
    late = write_late(table, expected=True)

    report = sweep(table, takeover_after=AT_ONCE)

    assert report.files_deleted == [late]
    assert not table.store.exists(late)
    assert list_runs(table.store) == []


def test_a_run_without_stragglers_leaves_nothing_of_its_ledger(table):
    write_late(table, expected=False)

    assert list_runs(table.store) == []


def test_files_that_stragglers_had_written_before_the_end_are_gone_at_once(table):
    run = start_run(table, table.groups("a"), SystemClock())
    [staged] = write_output(run, table.groups("a")[0]).outputs
    run.expect_stragglers()

    run.finish()

    assert not table.store.exists(staged.path)
    assert [entry.split("/")[0] for entry in run.entries()] == ["stems"]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("do", [do_group, write_output], ids=["recorded", "unrecorded"])
def test_what_was_committed_is_not_taken_for_the_work_of_a_straggler(table, do, parts):
    groups = table.groups("a", "b")
    run = start_run(table, groups, SystemClock())
    lost, result = write_output(run, groups[0]), do(run, groups[0], parts=parts)
    run.expect_stragglers()
    commit_group(run, table, groups[0], result)
    run.finish()

    report = sweep(table, takeover_after=AT_ONCE)

    assert (report.kept, list_runs(table.store)) == ({}, [])
    assert not table.store.exists(lost.outputs[0].path)
    assert set(table.live) == {"b", *(file.path for file in result.outputs)}
    assert all(table.store.exists(path) for path in table.live)


def commit_group(run, table, group, result):
    item = Replacement(group=group.id, removes=group.inputs, adds=result.outputs)
    change = Change(kind="rewrite", base_version=0, operation="OPTIMIZE", replacements=(item,))
    commit_results(run, table, change, results=[result])


def test_a_straggler_that_reports_after_the_end_does_not_bring_its_run_back(table):
    run = start_run(table, table.groups("a"), SystemClock())
    result = write_output(run, table.groups("a")[0])
    run.expect_stragglers()
    run.finish()

    run.record(result)
    sweep(table, takeover_after=AT_ONCE)

    assert list_runs(table.store) == []
    assert set(table.live) == {"a", "b"}


@pytest.mark.parametrize(("attempts", "is_repeated"), [("ab", False), ("aba", True)])
def test_names_tell_whether_the_same_was_tried_again(table, attempts, is_repeated):
    run = start_run(table, table.groups("a"), SystemClock())
    for attempt in attempts:
        run.reserve(0, attempt, directory="")

    assert run.has_repeated_attempts() == is_repeated
