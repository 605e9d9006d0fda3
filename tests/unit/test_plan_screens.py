"""What `plan`, `compact` and the progress bar show, without a table."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lakehand.cli.compact import operation_screen
from lakehand.cli.plan import plan_screen
from lakehand.cli.progress_bar import Phases, describe_amount, make_bars
from lakehand.model.work import DataFile, Group, GroupResult, Proof, Receipt, StagedFile
from lakehand.observe import Progress
from lakehand.observe.clock import ManualClock, Stopwatch
from lakehand.planning.policy import CHOSEN, LEFT, LEFT_DESCRIPTIONS, describe_chosen
from lakehand.rewrite.report import Done, report_of
from support.plans import plan, snapshot_of, with_policy

MIB = 2**20
WIDTH = 80


def show(parts):
    page = io.StringIO()
    Console(file=page, width=WIDTH, highlight=False).print(*parts, sep="\n")
    return page.getvalue()


def small_files(count, **options):
    return snapshot_of([10 * MIB] * count, **options)


def planned(snapshot, **changes):
    changes = {"target_file_bytes": 128 * MIB, "min_files": 2} | changes
    return plan(snapshot, with_policy(**changes)).plan


def report_for(snapshot, result, *, outcome="dry_run", **options):
    watch = Stopwatch(ManualClock())
    return report_of(snapshot, result, watch, outcome=outcome, **options)


def test_a_plan_names_files_sizes_method_and_both_reasons():
    page = show(plan_screen(planned(small_files(4, keys=["eu"] * 4))))

    assert "rewrite  4 files, 40 MiB, in 1 group" in page
    assert "files    4 → 1" in page
    assert "4 → 1" in page
    assert "recode  key=eu" in page
    assert "4 files below 64 MiB; not all footers were read" in page


def test_a_plan_fits_a_narrow_terminal():
    keys = ["a-partition-with-a-long-name-of-its-own"] * 4
    page = show(plan_screen(planned(small_files(4, keys=keys))))

    assert max(len(line) for line in page.splitlines()) <= WIDTH


def test_an_empty_plan_says_why():
    page = show(plan_screen(planned(snapshot_of([100 * MIB] * 2))))

    assert "not rewritten  2 files: large enough, no rewrite needed" in page
    assert "Nothing to do." in page


def test_only_the_largest_groups_are_shown_one_by_one():
    snapshot = small_files(60, keys=[f"p{n // 2}" for n in range(60)])
    page = show(plan_screen(planned(snapshot)))

    assert "and 20 smaller groups; --json lists all of them" in page


def test_what_is_beyond_the_caps_is_counted():
    snapshot = small_files(4, keys=["a", "a", "b", "b"])
    page = show(plan_screen(planned(snapshot, max_groups_per_run=1)))

    assert "2 files: beyond the limits of this run (1 group, 20 MiB)" in page


def test_every_reason_has_words():
    assert set(LEFT_DESCRIPTIONS) == set(LEFT)
    assert not any(str(reason) == describe_chosen(reason, 2)[8:] for reason in CHOSEN)


def test_a_dry_run_shows_what_is_expected():
    snapshot = small_files(4)
    page = show(operation_screen(report_for(snapshot, planned(snapshot))))

    assert "1 group of files would be rewritten; nothing was written" in page
    assert "files  4 → 1" in page
    assert "of one core" in page


def _group(group):
    size = group.input_bytes // len(group.paths)
    inputs = (DataFile(path=path, bytes=size, rows=100) for path in group.paths)
    return Group(id=group.id, inputs=tuple(inputs))


def committed(snapshot, *, dropped=(), failures=()):
    result = planned(snapshot)
    proof = Proof(kind="digest", rows=400, digest="00", bytes=30 * MIB, algorithm="a", engine="e")
    output = StagedFile(path="new", bytes=30 * MIB, rows=400)
    done = Done(
        groups=tuple(_group(planned_group) for planned_group in result.groups),
        results=tuple(
            GroupResult(group=g.id, attempt="a", outputs=(output,), proof=proof)
            for g in result.groups
        ),
        failures=failures,
        receipt=Receipt(version=7, dropped=dropped),
    )
    return report_for(snapshot, result, outcome="committed", done=done)


def test_a_run_shows_what_it_changed_and_its_evidence():
    page = show(operation_screen(committed(small_files(4))))

    assert "compact: version 7 committed" in page
    assert "groups  1 rewritten" in page
    assert "rows    400 proved equal, read back from storage" in page


def test_a_run_shows_what_it_lost():
    snapshot = small_files(4, keys=["a", "a", "b", "b"])
    report = committed(snapshot, dropped=(1,), failures=({"message": "the disk is full"},))
    page = show(operation_screen(report))

    assert "1 rewritten, 1 lost to concurrent writers, 1 failed" in page
    assert "failed: the disk is full" in page


def test_a_proof_by_counts_claims_no_more_than_that():
    report = committed(small_files(4))
    report = replace(report, proof=replace(report.proof, kind="counts"))

    assert "400 counted, but not compared" in show(operation_screen(report))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Progress(phase="p", done=3, total=8, unit="groups"), "3/8 groups"),
        (Progress(phase="p", done=0, unit="files"), ""),
        (Progress(phase="p", done=5, unit="files"), "5 files"),
        (
            Progress(
                phase="p", done=1, total=2, unit="groups", done_bytes=MIB, total_bytes=4 * MIB
            ),
            "1/2 groups, 1 MiB of 4 MiB",
        ),
    ],
)
def test_progress_is_told_in_groups_and_bytes(event, words):
    assert describe_amount(event) == words


def test_a_bar_moves_by_bytes_and_phases_without_end_make_room():
    bars = make_bars(Console(file=io.StringIO()))
    phases = Phases(bars)

    phases.show(Progress(phase="survey", done=0, unit="files"))
    phases.show(Progress(phase="rewrite", done=1, total=2, done_bytes=30, total_bytes=40))

    assert [task.description for task in bars.tasks if task.visible] == ["rewrite"]
    assert bars.tasks[-1].percentage == 75
