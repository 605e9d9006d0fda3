"""Deduplications that are killed or starved: the table is as it was or as it should be."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehand.observe.steps import Step
from lakehand.rows import workshop
from lakehand.runs import list_runs, sweep
from support.compactions import InlineRunner, open_table
from support.crash import kill_at, run_and_kill
from support.deduplications import PROPERTIES, append, contents, deduplicate_inline, kept, rows
from support.unharmed import files_in_ledgers

BATCHES = ([(1, 0, 0), (2, 0, 1)], [(1, 0, 2), (3, 0, 3)], [(2, 0, 4), (1, 0, 5)])
EVERY = sorted(row for batch in BATCHES for row in batch)
BEFORE = (
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
)
AFTER = (
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
    Step.RUN_CLOSED,
    Step.RUN_CLEANED,
)


def make(path, kind):
    properties = {**PROPERTIES[kind], "delta.enableChangeDataFeed": "true"}
    for batch in BATCHES:
        append(path, rows(*batch), configuration=properties)
    return path


def by_first(path):
    deduplicate_inline(path, key=["id"])


def unaccounted(path):
    """Return files of runs that neither the table nor a ledger names."""
    found = {file.relative_to(path).as_posix() for file in path.rglob("*lakehand-*/*")}
    found |= {file.relative_to(path).as_posix() for file in path.rglob("*lakehand-*.parquet")}
    table = open_table(str(path))
    vectors = table.snapshot().files["native"].combine_chunks().field("deletion_vector")
    prefixes = {name[:-20] for name in vectors.field("path_or_inline").to_pylist() if name}
    live = set(table.snapshot().files["path"].to_pylist()) | files_in_ledgers(path)
    return {
        name
        for name in found - live
        if not name.startswith("_lakehand/") and name.split("/")[0] not in prefixes
    }


@kill_at(*BEFORE, *AFTER)
def test_a_killed_deduplication_leaves_old_or_new_and_the_next_one_ends_it(tmp_path, step):
    assert_ended_by_the_next(make(tmp_path / "t", "vectors"), step)


@kill_at(Step.TASK_WRITTEN, Step.COMMIT_PREPARED, Step.RUN_COMMITTED)
def test_so_does_one_that_writes_files_and_change_files_anew(tmp_path, step):
    assert_ended_by_the_next(make(tmp_path / "t", "copies"), step)


def assert_ended_by_the_next(path, step):
    run_and_kill(step, by_first, str(path))

    left = kept(BATCHES, keep="first")
    assert contents(path) == (left if step in AFTER else EVERY)
    deduplicate_inline(path, key=["id"], takeover_after="0s")
    assert contents(path) == left
    assert unaccounted(path) - committed_changes(path) == set()


def committed_changes(path):
    """Return change files, which no snapshot names."""
    return {f"_change_data/{file.name}" for file in (path / "_change_data").glob("*.parquet")}


class Speculating(InlineRunner):
    """Runs tasks as a Spark does whose tasks may be at work twice."""

    def run(self, *args, run=None, **options):
        outcomes = super().run(*args, **options)
        if run is not None:
            run.expect_stragglers()
        return outcomes


@pytest.mark.parametrize("kind", PROPERTIES)
def test_a_sweep_after_tasks_that_were_given_up_leaves_what_was_committed(
    tmp_path, kind, monkeypatch
):
    path = make(tmp_path / "t", kind)
    monkeypatch.setattr(workshop, "_runner", lambda *_: Speculating())
    deduplicate_inline(path, key=["id"])

    report = sweep(open_table(str(path)), takeover_after=timedelta(0))

    assert (report.files_deleted, report.kept) == ([], {})
    assert contents(path) == kept(BATCHES, keep="first")
    assert list_runs(open_table(str(path)).store) == []
