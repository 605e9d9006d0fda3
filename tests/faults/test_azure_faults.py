"""Azure: races, kills, lost answers and deletions, as on S3."""

from __future__ import annotations

import shutil

import pytest

import lakehand
from lakehand.formats.delta.log.listing import list_commits, read_commit
from lakehand.formats.delta.table import DeltaFormat
from lakehand.observe.steps import Step
from lakehand.sink import TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.commit_races import SCHEMA as RACE_SCHEMA
from support.commit_races import race
from support.compactions import COMPACT, open_table
from support.crash import kill_at, run_and_kill
from support.later_vacuums import vacuum_later
from support.sinks import SCHEMA, batch_of, expected_ids, ids_in, write_epochs
from support.small_tables import read_sorted, rows

pytestmark = pytest.mark.server


@pytest.fixture
def uri(azure_server):
    return azure_server.new_uri()


@pytest.fixture
def options(azure_server):
    return azure_server.options


def test_of_commits_that_race_none_is_lost(uri, options):
    store = open_store(uri, options)
    DeltaFormat().create(store, RACE_SCHEMA, properties={"delta.checkpointInterval": "40"})

    attempts = race(uri, options, writers=3, commits=5)

    versions = list_commits(store, -1)
    log = {version: read_commit(store, version).commit_info["txnId"] for version in versions[1:]}
    assert log == {attempt.version: attempt.token for attempt in attempts if attempt.version}
    assert versions == tuple(range(len(versions)))
    added = {a.path for a in attempts if a.version and not a.is_removal}
    removed = {a.path for a in attempts if a.version and a.is_removal}
    snapshot = DeltaFormat().open(store).snapshot()
    assert set(snapshot.files["path"].to_pylist()) == added - removed


def make_table(uri, options):
    """Make a table of four commits with two files each."""
    lakehand.create_table(uri, rows(0, 1).schema, partition_by=["region"], storage_options=options)
    table = lakehand.open_table(uri, storage_options=options)
    for number in range(4):
        table.append(rows(number * 10, 10))
    return table


def read(uri, options, copy):
    """Read a copy of the table with delta-rs, which cannot list logs on azurite."""
    store = open_store(uri, options)
    shutil.rmtree(copy, ignore_errors=True)
    for info in store.list():
        (copy / info.key).parent.mkdir(parents=True, exist_ok=True)
        store.download(info.key, copy / info.key)
    return read_sorted(copy)


@kill_at(Step.COMMIT_PUT)
def test_a_killed_compaction_is_ended_by_the_next_call(uri, options, step, tmp_path):
    make_table(uri, options)
    run_and_kill(step, COMPACT, uri, "2m", options)
    assert read(uri, options, tmp_path / "copy").equals(rows(0, 40))

    COMPACT(uri, "0s", options)

    assert open_table(uri, options).snapshot().file_count == 2
    assert read(uri, options, tmp_path / "copy").equals(rows(0, 40))


def write_epochs_to(uri: str, options: dict[str, str]) -> None:
    write_epochs(uri, 3, storage_options=options, partition_by="part")


@kill_at(Step.COMMIT_PUT)
def test_a_killed_sink_goes_on_where_it_stopped(uri, options, step):
    run_and_kill(step, write_epochs_to, uri, options, occurrence=2)

    write_epochs_to(uri, options)

    assert ids_in(uri, storage_options=options) == expected_ids(3)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_a_commit_without_an_answer_is_there_once(uri, options, kind):
    lakehand.create_table(uri, SCHEMA, storage_options=options)
    fault = Fault(kind=kind, operation="put_if_absent", key="_delta_log/*")
    with TableSink(FaultStore(open_store(uri, options), [fault]), writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1, 2]))
        sink.commit_epoch()

    assert fault.hits == 1
    assert ids_in(uri, storage_options=options) == [1, 2]


def test_vacuum_deletes_what_deleted_rows_leave(uri, options, tmp_path):
    table = make_table(uri, options)
    table.delete(where="id < 15")
    COMPACT(uri, "0s", options)
    store = open_store(uri, options)

    report = vacuum_later(store)

    assert (report.errors, report.files_deleted > 0) == ((), True)
    live = set(open_table(uri, options).snapshot().files["path"].to_pylist())
    assert {i.key for i in store.list() if not i.key.startswith("_")} == live
    assert read(uri, options, tmp_path / "copy").equals(rows(15, 25))
