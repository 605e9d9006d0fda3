"""A format that implements the core of the protocol alone, and what lakehand does with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run as run_command
from lakehand.errors import NotATableError, ProofError, RefusedError, ValidationError
from lakehand.formats import registry
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.deduplications import once_at
from support.formats import FILES, ROWS, open_here, some_rows, tasks_inline
from support.manifest_format import (
    DATA,
    NAME,
    NO_CHECKPOINTS,
    ManifestFormat,
    append_rows,
    compact_and_die,
    registered,
)

ALL = list(range(FILES * ROWS))

#: Everything that needs more than the core.
REFUSED = {
    "checkpoint": lambda table: table.checkpoint(),
    "vacuum": lambda table: table.vacuum(),
    "statistics": lambda table: table.statistics(),
    "clean_logs": lambda table: table.clean_logs(),
    "purge": lambda table: table.purge(),
    "verify": lambda table: table.verify(),
    "repair": lambda table: table.repair(),
    "restore": lambda table: table.restore(version=0),
    "cluster": lambda table: table.cluster(by=["id"]),
    "compact": lambda table: table.compact(sort_by=["id"]),
    "append": lambda table: table.append(some_rows(0)),
    "upsert": lambda table: table.upsert(some_rows(0), key=["id"]),
    "delete_keys": lambda table: table.delete_keys(some_rows(0), key=["id"]),
    "delete": lambda table: table.delete(where="id = 1"),
    "deduplicate": lambda table: table.deduplicate(key=["id"]),
    "transactions": lambda table: table.transactions(),
}


@pytest.fixture
def path(tmp_path):
    for number in range(FILES):
        append_rows(tmp_path, some_rows(number * ROWS))
    with registered(), tasks_inline():
        yield str(tmp_path)


def ids(path, **options):
    return sorted(open_here(path).to_arrow(**options)["id"].to_pylist())


def test_a_registered_format_is_opened_and_inspected(path):
    table = open_here(path)
    found = table.inspect()
    assert (table.format, found.format) == (NAME, NAME)
    assert (found.file_count, found.row_count) == (FILES, FILES * ROWS)
    assert (found.small_file_count, found.commits_since_checkpoint) == (FILES, 0)


def test_its_rows_are_read_at_any_version_under_any_condition(path):
    assert ids(path) == ALL
    assert ids(path, version=0) == list(range(ROWS))
    assert ids(path, where="id > 5 AND id < 9") == [6, 7, 8]


def test_compaction_keeps_every_row_and_proves_it(path):
    report = open_here(path).compact()
    assert (report.outcome, report.files_before, report.files_after) == ("committed", FILES, 1)
    assert report.proof.rows == FILES * ROWS
    assert ids(path) == ALL
    newest = open_here(path).history(limit=1)[0]
    assert (newest.operation, bool(newest.token), bool(newest.proof)) == ("compact", True, True)


def test_its_files_are_rewritten_by_worker_processes(tmp_path):
    for number in range(2):
        append_rows(tmp_path, some_rows(number * ROWS))
    with registered():
        assert open_here(str(tmp_path), min_files=2).compact().ran_on == "local"
        assert ids(str(tmp_path)) == list(range(2 * ROWS))


def test_rows_appended_while_files_are_compacted_stay(path):
    race = once_at("commit", lambda: append_rows(path, some_rows(1000, 3)))
    assert open_here(path).compact(on_progress=race).outcome == "committed"
    assert ids(path) == [*ALL, 1000, 1001, 1002]


def test_a_file_that_lost_rows_stops_the_commit(path, monkeypatch):
    monkeypatch.setattr("support.manifest_format.ManifestWorker.write", _losing)
    before = open_here(path).snapshot().version
    with pytest.raises(ProofError):
        open_here(path).compact()
    assert (open_here(path).snapshot().version, ids(path)) == (before, ALL)


def _losing(self, batches, spec, *, like, stem):
    from support.manifest_format import write_rows

    _, *kept = batches
    return (write_rows(self.store, f"{DATA}/{stem}.arrow", self.schema, kept),)


def test_a_proof_by_two_decoders_is_refused_where_there_is_one(path):
    with pytest.raises(ProofError, match="one decoder alone"):
        open_here(path).compact(prove="independent")
    assert ids(path) == ALL


def test_a_stored_plan_is_carried_out(path):
    plan = open_here(path).plan()
    append_rows(path, some_rows(1000, 3))
    assert open_here(path).compact(plan=plan).outcome == "committed"
    assert ids(path) == [*ALL, 1000, 1001, 1002]


@kill_at(Step.TASK_WRITTEN, Step.TASK_RECORDED, Step.RUN_COMMITTING, Step.RUN_COMMITTED)
def test_a_killed_compaction_harms_nothing_and_is_ended_by_the_next(tmp_path, step):
    for number in range(FILES):
        append_rows(tmp_path, some_rows(number * ROWS))
    path = str(tmp_path)
    run_and_kill(step, compact_and_die, path)
    with registered(), tasks_inline():
        assert ids(path) == ALL
        open_here(path, takeover_after="0s", min_files=2).compact()
        assert ids(path) == ALL
        assert open_here(path).inspect().file_count == 1
        needed = open_here(path)._handle.protected(since=datetime.now(UTC)).keys.to_pylist()
    left = {f"{DATA}/{file.name}" for file in (tmp_path / DATA).iterdir()} - set(needed)
    # A commit that was about to be made may still land: its file is kept.
    assert len(left) == (1 if step == Step.RUN_COMMITTING else 0)


@pytest.mark.parametrize("operation", sorted(REFUSED))
def test_what_the_format_does_not_support_is_refused_before_anything_is_written(path, operation):
    before = sorted(file.key for file in open_here(path)._handle.store.list())
    with pytest.raises(RefusedError, match=rf"^{operation} is not possible on file:") as caught:
        REFUSED[operation](open_here(path))
    assert caught.value.to_json()["operation"] == operation
    assert sorted(file.key for file in open_here(path)._handle.store.list()) == before


def test_a_reason_that_the_format_gives_is_part_of_the_refusal(path):
    with pytest.raises(RefusedError, match=NO_CHECKPOINTS):
        open_here(path).checkpoint()


def test_maintain_compacts_and_leaves_out_what_is_not_supported(path):
    report = open_here(path, quiet_period="0s", min_files=2).maintain()
    outcomes = {step.step: step.outcome for step in report.steps}
    left_out = {"vacuum": "left_out", "checkpoint": "left_out", "clean_logs": "left_out"}
    assert outcomes == {"compact": "committed", **left_out}
    assert ids(path) == ALL


def test_health_is_told_without_the_checks_that_are_not_supported(path):
    report = open_here(path).health()
    assert (report.file_count, report.files_checked) == (FILES, 0)


def test_a_version_is_pinned_and_a_stream_is_not(path):
    assert open_here(path).pin("before", version=2).version == 2
    with pytest.raises(RefusedError, match="pin of a stream is not possible"):
        open_here(path).pin("reader", stream=path)


def test_the_command_knows_the_format(path, capsys):
    assert run_command(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == NAME


def test_a_table_of_a_format_that_creates_none_is_not_created(path, tmp_path):
    with pytest.raises(ValidationError, match="does not create"):
        lakehand.create_table(tmp_path / "new", pa.schema([("a", pa.int64())]), format=NAME)


def test_an_unregistered_format_is_no_table(tmp_path):
    append_rows(tmp_path, some_rows(0))
    with pytest.raises(NotATableError):
        lakehand.open_table(tmp_path)


def test_a_name_is_registered_once():
    with pytest.raises(ValidationError, match="delta"):
        registry.register_format("delta", ManifestFormat)


def test_an_earlier_version_is_found_by_its_time(path):
    snapshot = open_here(path).snapshot(timestamp=datetime.now(UTC))
    assert snapshot.version == FILES - 1
