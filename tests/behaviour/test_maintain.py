"""One call that does whatever is due: on every format, with steps that fail and writers beside."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow.compute as pc
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.errors import ValidationError
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.lance import protocol
from lakehand.formats.registry import load_format
from lakehand.maintenance.maintain import maintain
from lakehand.model.maintenance import MAINTENANCE_STEPS
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import vacuum
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.deduplications import once_at
from support.formats import FILES, KITS, ROWS, open_here, some_rows, tasks_inline, vacuum_later

ALL = list(range(FILES * ROWS))
#: Tables of tests are written to a moment ago, and have few files.
EAGER = {"quiet_period": "0s", "min_files": 4}


@pytest.fixture(params=list(KITS))
def kit(request):
    with tasks_inline():
        yield KITS[request.param]


@pytest.fixture
def path(kit, tmp_path):
    return kit.make(tmp_path / "t")


@pytest.fixture
def delta_path(tmp_path):
    with tasks_inline():
        yield KITS["delta"].make(tmp_path / "t")


def later(path, *, days=30, handle=None, dry_run=False, **settings):
    """Maintain a table as if it were `days` from now."""
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    chosen = Settings({"engine": "local", "grace": "0", **settings}, environment={})
    if handle is None:
        name = lakehand.open_table(path).format
        handle = load_format(name).open(open_store(path), settings=chosen)
    return maintain(handle, settings=chosen, dry_run=dry_run, clock=clock)


def step(report, name):
    (found,) = [step for step in report.steps if step.step == name]
    return found


def outcomes(report):
    return {step.step: step.outcome for step in report.steps}


def tree(path):
    files = (file for file in Path(path).rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files}


def test_what_is_due_is_done_and_a_second_call_does_nothing(kit, path):
    rows = kit.rows(path)
    report = open_here(path, **EAGER).maintain()

    assert (report.outcome, report.errors) == ("committed", ())
    done = step(report, "compact")
    assert (done.outcome, done.is_due) == ("committed", True)
    assert done.reason == f"{FILES} small files"
    assert done.report.proof.rows == FILES * ROWS
    assert (kit.rows(path), len(kit.files(path))) == (rows, 1)

    before = tree(path)
    again = open_here(path, **EAGER).maintain()
    assert (again.outcome, again.version) == ("nothing_to_do", report.version)
    assert not any(step.is_due for step in again.steps)
    assert kit.rows(path) == rows
    assert tree(path) == before


def test_a_dry_run_says_what_is_due_and_writes_nothing(path):
    before = tree(path)
    report = open_here(path, **EAGER).maintain(dry_run=True)

    assert (report.outcome, report.dry_run) == ("dry_run", True)
    assert step(report, "compact").outcome == "dry_run"
    assert step(report, "vacuum").outcome == "nothing_to_do"
    assert tree(path) == before


def test_partitions_that_are_written_to_are_left_and_that_is_said(kit, path):
    report = open_here(path, min_files=4).maintain()

    left = step(report, "compact")
    assert (left.outcome, len(kit.files(path))) == ("nothing_to_do", FILES)
    assert left.left == (f"{FILES} files: in partitions with recent writes",)


def test_automatic_compaction_that_is_off_is_the_reason(kit, path):
    left = step(open_here(path, auto_compact=False, **EAGER).maintain(), "compact")

    assert (left.outcome, left.reason) == ("nothing_to_do", "automatic compaction is off")
    assert "auto_compact is off" in left.left[0]


def test_what_a_format_lacks_is_left_out_with_its_reason(path):
    table = open_here(path)
    lacking = table._handle.capabilities.lacking
    left_out = {s.step: s.reason for s in table.maintain().steps if s.outcome == "left_out"}
    assert left_out == {
        verb: reason for verb, reason in lacking.items() if verb in MAINTENANCE_STEPS
    }


def test_files_past_the_retention_go(kit, path):
    open_here(path).compact()
    listed = later(path, dry_run=True)
    assert step(listed, "vacuum").is_due

    report = later(path)

    vacuumed = step(report, "vacuum")
    assert (vacuumed.outcome, vacuumed.report.files_deleted >= FILES) == ("committed", True)
    assert "that no version of the last 7 d needs" in vacuumed.reason
    assert kit.ids(path) == ALL
    assert open_here(path).verify().outcome == "sound"
    assert later(path).outcome == "nothing_to_do"


def test_a_step_that_fails_stops_no_other(kit, path):
    open_here(path).compact()
    for number in range(4):
        kit.append(path, some_rows(1000 + number * ROWS))
    lost = next(Path(path).rglob(Path(kit.files(path)[-1]).name))
    lost.unlink()

    report = later(path, min_files=4)

    failed = step(report, "compact")
    assert (failed.outcome, failed.is_due, failed.report) == ("failed", None, None)
    assert failed.error["code"] in ("FILE_NOT_FOUND", "CORRUPT_FILE")
    assert [error["step"] for error in report.errors] == ["compact"]
    assert step(report, "vacuum").report.files_deleted >= FILES
    assert report.outcome == "committed"


def test_a_call_in_which_a_step_failed_and_none_did_anything_has_failed(kit, path):
    next(Path(path).rglob(Path(kit.files(path)[-1]).name)).unlink()
    report = open_here(path, **EAGER).maintain(skip=["vacuum", "checkpoint", "clean-logs"])
    assert (step(report, "compact").outcome, report.outcome) == ("failed", "failed")


def test_a_vacuum_that_could_delete_nothing_has_failed(kit, path, monkeypatch):
    open_here(path).compact()
    failure = {"code": "STORAGE", "message": "no", "hint": None, "retryable": False}

    def vacuum_in_vain(table, **options):
        found = vacuum(table, **options)
        return replace(found, outcome="nothing_to_do", files_deleted=0, errors=(failure,))

    monkeypatch.setattr("lakehand.retention.vacuum.vacuum", vacuum_in_vain)
    report = open_here(path).maintain(skip=["compact", "checkpoint", "clean-logs"])
    assert (step(report, "vacuum").outcome, report.outcome) == ("failed", "failed")
    assert [error["step"] for error in report.errors] == ["vacuum"]


def test_the_command_prints_all_of_it_and_its_exit_code_tells(kit, path, capsys):
    options = ["--engine", "local", "--quiet-period", "0s", "--min-files", "4"]
    assert run(["maintain", path, *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["operation"], document["outcome"]) == ("maintain", "committed")
    assert document["steps"][0]["report"]["files_after"] == 1

    assert run(["maintain", path, *options]) == 0
    page = capsys.readouterr().out
    assert "nothing done" in page

    for number in range(4):
        kit.append(path, some_rows(1000 + number * ROWS))
    next(Path(path).rglob(Path(kit.files(path)[-1]).name)).unlink()
    assert run(["maintain", path, *options]) == 1
    page = capsys.readouterr().out
    assert "1 step failed" in page


def test_a_step_that_is_not_wanted_is_left_out(kit, path):
    report = open_here(path, **EAGER).maintain(skip=["compact", "clean-logs"])
    assert step(report, "compact").outcome == step(report, "clean_logs").outcome == "left_out"
    assert len(kit.files(path)) == FILES
    with pytest.raises(ValidationError, match="no step named 'polish'"):
        open_here(path).maintain(skip=["polish"])


def test_a_table_in_order_is_kept_in_order(kit, path):
    open_here(path).cluster(by=["id"], curve="linear")
    for number in range(4):
        kit.append(path, some_rows(1000 + number * ROWS))

    report = open_here(path, **EAGER).maintain()

    done = step(report, "cluster")
    assert (done.outcome, done.reason) == ("committed", "4 files not clustered yet")
    assert (done.report.columns, done.report.curve) == (("id",), "linear")
    assert kit.ids(path) == [*ALL, *range(1000, 1000 + 4 * ROWS)]
    assert open_here(path, **EAGER).maintain().outcome == "nothing_to_do"


def test_an_order_of_a_few_files_is_no_reason_to_sort_all(kit, tmp_path):
    path = kit.make(tmp_path / "t")
    first = open_here(path).snapshot().files["path"][0]
    one = lambda files: pc.equal(files["path"], first)  # noqa: E731
    open_here(path).cluster(by=["id"], curve="linear", file_filter=one)

    report = open_here(path, **EAGER).maintain()

    assert step(report, "compact").outcome == "committed"
    assert kit.ids(path) == ALL


def ordered_and_appended(path, **options):
    """Make a Lance table whose rows are clustered by id, but for those of four later appends."""
    kit = KITS["lance"]
    for number in range(FILES):
        rows = some_rows(number * ROWS)
        lance.write_dataset(rows, path, mode="append" if number else "create", **options)
    open_here(str(path)).cluster(by=["id"], curve="linear")
    lance.dataset(path).create_scalar_index("id", "BTREE")
    for number in range(4):
        kit.append(str(path), some_rows(1000 + number * ROWS))
    return str(path)


def test_a_table_with_indices_is_clustered_and_its_indices_know_the_rows(tmp_path):
    with tasks_inline():
        path = ordered_and_appended(tmp_path / "t")
        report = open_here(path, **EAGER).maintain()

    assert (step(report, "cluster").outcome, report.errors) == ("committed", ())
    assert KITS["lance"].ids(path) == [*ALL, *range(1000, 1000 + 4 * ROWS)]
    assert lance.dataset(path).to_table(filter="id IN (3, 1003)").num_rows == 2


def test_an_order_that_is_refused_is_said_and_files_are_compacted(tmp_path, monkeypatch):
    with tasks_inline():
        path = ordered_and_appended(tmp_path / "t", enable_stable_row_ids=True)
        monkeypatch.setattr(protocol, "_MOST_MOVED_IDS", 1)
        report = open_here(path, **EAGER).maintain()

    done = step(report, "compact")
    assert (done.outcome, report.errors) == ("committed", ())
    assert done.left[0].startswith("rows are not clustered by id: ")
    assert KITS["lance"].ids(path) == [*ALL, *range(1000, 1000 + 4 * ROWS)]


def test_indices_are_brought_up_to_date_if_that_is_asked_for(tmp_path):
    kit = KITS["lance"]
    path = kit.make(tmp_path / "t")
    lance.dataset(path).create_scalar_index("id", "BTREE")
    kit.append(path, some_rows(1000))
    with tasks_inline():
        table = open_here(path, update_indices=True)
        report = table.maintain()
        done = step(report, "compact")
        again = table.maintain()

    assert (done.outcome, done.reason) == (
        "committed",
        "indices that did not know all rows: id_idx",
    )
    assert (again.outcome, again.version) == ("nothing_to_do", report.version)
    assert kit.ids(path) == [*ALL, *range(1000, 1000 + ROWS)]


def test_rows_that_come_meanwhile_stay(kit, path):
    race = once_at("rewrite", lambda: kit.append(path, some_rows(1000, 3)))
    report = open_here(path, **EAGER).maintain(on_progress=race)
    assert step(report, "compact").outcome == "committed"
    assert kit.ids(path) == [*ALL, 1000, 1001, 1002]


def test_a_caller_that_wants_to_stop_stops_all_of_it(kit, path):
    told = []

    def stop(progress):
        told.append(progress.phase)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        open_here(path, **EAGER).maintain(on_progress=stop)
    assert (len(told), len(kit.files(path))) == (1, FILES)


def test_a_vacuum_waits_for_its_interval(path):
    open_here(path).compact()
    assert step(later(path, vacuum_interval="1d"), "vacuum").outcome == "committed"
    waiting = step(later(path, vacuum_interval="1d"), "vacuum")
    assert (waiting.report, waiting.reason) == (
        None,
        "the last vacuum is less than 1 d ago (vacuum_interval)",
    )
    assert step(later(path, days=32, vacuum_interval="1d"), "vacuum").report is not None
    assert vacuum_later(path).files_deleted == 0


def test_a_checkpoint_is_written_when_enough_commits_wait(delta_path):
    table = open_here(delta_path, checkpoint_interval=5)
    due = step(table.maintain(dry_run=True), "checkpoint")
    assert (due.is_due, due.reason) == (True, "8 commits to replay; due every 5")
    assert table.snapshot().checkpoint_version is None

    assert step(table.maintain(), "checkpoint").report.version == FILES - 1
    assert table.snapshot().checkpoint_version == FILES - 1
    assert step(table.maintain(), "checkpoint").outcome == "nothing_to_do"


def test_a_log_is_cleaned_of_what_is_past_its_retention(delta_path):
    settings = Settings({"checkpoint_interval": 5}, environment={})
    clock = ManualClock(datetime.now(UTC) + timedelta(days=60))
    handle = DeltaTable(open_store(delta_path), settings=settings, clock=clock)

    report = later(delta_path, handle=handle, days=60, checkpoint_interval=5)

    cleaned = step(report, "clean_logs")
    assert (cleaned.outcome, cleaned.report.files_deleted > 0) == ("committed", True)
    assert cleaned.reason.endswith("older than the log's retention")
    assert KITS["delta"].ids(delta_path) == ALL
    again = later(delta_path, handle=handle, days=60, checkpoint_interval=5)
    assert again.outcome == "nothing_to_do"
