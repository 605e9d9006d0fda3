"""What the tasks and the driver of a write on Spark do, without Spark: each row is there once."""

from __future__ import annotations

import importlib
import pickle
import uuid
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import lakehand
from lakehand.errors import (
    CommitUnknownError,
    NotATableError,
    RefusedError,
    ReplanError,
    SchemaMismatchError,
    UnknownSettingError,
    ValidationError,
    WriterCollisionError,
)
from lakehand.model.work import Transaction
from lakehand.sink.descriptor import Descriptor
from lakehand.sink.epochs import delete_unreported
from lakehand.sink.writer_lease import WriterLease
from lakehand.spark import LakehandSource
from lakehand.spark.source_options import SourceOptions, bins_of
from lakehand.spark.write_job import WriteJob, mark_of
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from lakehand.storage.retry import RetryPolicy
from support.killed_writers import compact_now
from support.sinks import SCHEMA, batch_of, ids_in

LOG = "_delta_log/*.json"


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def asked(place, use="write", **options):
    return SourceOptions.of({"path": str(place), **options}, use=use)


def begin(place, *, schema=SCHEMA, overwrite=False, store=None, **options):
    return WriteJob.begin(
        store or open_store(place), asked(place, **options), schema, overwrite=overwrite
    )


def run_tasks(job, *parts):
    """Write as tasks do, each with a copy of the job, and send what they say as text."""
    texts = [pickle.loads(pickle.dumps(job)).write([batch_of(part)]).to_json() for part in parts]
    return [Descriptor.from_json(text) for text in texts]


def commit(job, descriptors, mark=None):
    return job.commit(descriptors, token=job.token, mark=mark)


def files_in(place):
    return {path.name for path in place.glob("**/*.parquet")}


def test_rows_of_all_tasks_are_one_version(place):
    job = begin(place)
    receipt = commit(job, run_tasks(job, [1, 2], [], [3]))

    assert (receipt.version, ids_in(place)) == (1, [1, 2, 3])


def test_the_first_batch_creates_the_table_with_its_partitions(tmp_path):
    job = begin(tmp_path / "new", partition_by="part")
    commit(job, run_tasks(job, [1, 2, 3]))

    table = lakehand.open_table(tmp_path / "new")
    assert ids_in(tmp_path / "new") == [1, 2, 3]
    assert table.snapshot().partition_columns == ("part",)


def test_no_table_is_created_where_that_is_not_wanted(tmp_path):
    with pytest.raises(NotATableError, match="none may be created"):
        begin(tmp_path / "new", create_table="false")
    assert not (tmp_path / "new").exists()


def test_the_former_module_of_the_source_works_and_warns():
    former = importlib.import_module("lakehand.sink.spark_source")

    with pytest.warns(DeprecationWarning, match=r"is now lakehand\.spark\.LakehandSource"):
        assert former.LakehandSource is LakehandSource


def test_a_batch_that_is_in_the_table_is_skipped_and_its_files_are_deleted(place):
    mark = Transaction(application="nightly", version=7)
    first = begin(place)
    commit(first, run_tasks(first, [1]), mark)
    files = files_in(place)

    second = begin(place)
    assert commit(second, run_tasks(second, [1]), mark) is None

    assert ids_in(place) == [1]
    assert files_in(place) == files


def test_of_two_tries_at_once_one_is_in_the_table_and_the_other_leaves_nothing(place):
    mark = Transaction(application="nightly", version=7)
    first, second = begin(place), begin(place)
    described = run_tasks(first, [1]), run_tasks(second, [1])
    commit(first, described[0], mark)

    with pytest.raises(WriterCollisionError):
        commit(second, described[1], mark)

    assert ids_in(place) == [1]
    assert len(files_in(place)) == 1


def test_an_overwrite_takes_the_place_of_what_came_meanwhile_too(place):
    job = begin(place, overwrite=True)
    described = run_tasks(job, [1])
    lakehand.open_table(place).append(batch_of([8, 9]))
    commit(job, described)

    assert ids_in(place) == [1]


def test_an_overwrite_without_rows_empties_the_table(place):
    lakehand.open_table(place).append(batch_of([8, 9]))
    job = begin(place, overwrite=True)
    commit(job, run_tasks(job, []))

    assert ids_in(place) == []


def test_a_task_that_fails_leaves_no_file(place):
    def rows():
        yield batch_of(list(range(1000)))
        raise OSError("the executor is in trouble")

    job = begin(place)
    with pytest.raises(OSError, match="in trouble"):
        job.write(rows())
    assert files_in(place) == set()


def test_files_of_another_table_are_not_committed_and_are_deleted(place):
    job = begin(place)
    described = run_tasks(job, [1])
    for path in place.glob("_delta_log/*"):
        path.unlink()
    lakehand.create_table(place, SCHEMA.append(pa.field("other", pa.string())))

    with pytest.raises(ReplanError, match="written for another table"):
        commit(begin(place), described)
    assert files_in(place) == set()


def test_a_file_that_is_gone_is_never_named_by_a_version(place):
    job = begin(place)
    described = run_tasks(job, [1], [2])
    next(iter(place.glob("*.parquet"))).unlink()

    with pytest.raises(ValidationError, match="is not in"):
        commit(job, described)
    assert lakehand.open_table(place).snapshot().version == 0


def test_files_stay_when_nobody_knows_what_became_of_the_commit(place, monkeypatch):
    policy = RetryPolicy(max_retries=1, base_delay=timedelta(0))
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", policy)
    lost = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key=LOG)
    unread = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key="_delta_log/*1.json", times=2)
    job = begin(place, store=FaultStore(open_store(place), (lost, unread)))
    described = [job.write([batch_of([1])])]

    with pytest.raises(CommitUnknownError):
        commit(job, described)
    assert ids_in(place) == [1]


def test_a_commit_that_is_interrupted_after_it_landed_keeps_its_files(place, monkeypatch):
    def press_the_key(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lakehand.formats.delta.commits.commit._log_success", press_the_key)
    with pytest.raises(KeyboardInterrupt):
        lakehand.open_table(place).append(batch_of([1]))
    monkeypatch.undo()

    assert ids_in(place) == [1]


def test_rows_that_do_not_fit_are_refused_before_a_task_starts(place):
    with pytest.raises(SchemaMismatchError, match="'colour' is not in the table"):
        begin(place, schema=pa.schema([("colour", pa.string())]))


def test_columns_are_not_added_by_spark(place):
    with pytest.raises(RefusedError, match="does not change the columns"):
        begin(place, mergeSchema="true")


def test_an_unknown_option_names_those_there_are():
    with pytest.raises(UnknownSettingError, match="no option 'colums'") as caught:
        asked("t", use="read", colums="id")
    for name in ("columns", "where", "version", "timestamp"):
        assert name in caught.value.hint


@pytest.mark.parametrize("name", ["storage.aws_secret_access_key", "Storage.token"])
def test_secrets_are_no_options(name):
    with pytest.raises(ValidationError, match="Spark shows options") as caught:
        asked("t", **{name: "shibboleth"})
    assert "with_storage_options" in caught.value.hint
    assert "shibboleth" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"epoch": "3"}, {"writer_id": "w"}, {"writer_id": "w", "epoch": "three"}]
)
def test_a_batch_needs_a_writer_id_and_an_epoch_or_neither(options):
    with pytest.raises(ValidationError, match="epoch"):
        mark_of(asked("t", **options))


def test_options_have_the_spellings_that_users_bring_along():
    found = asked("t", txnAppId="w", txnVersion="3", replaceWhere="part = 'p0'")
    assert mark_of(found) == Transaction(application="w", version=3)
    assert found.where == "part = 'p0'"
    read = asked("t", use="read", versionAsOf="3", columns='["a,b", "c"]')
    assert (read.version, read.columns) == (3, ("a,b", "c"))
    assert asked("t", use="read", columns="a, b").columns == ("a", "b")


def test_the_mode_is_not_said_by_an_option():
    with pytest.raises(ValidationError, match="outputMode"):
        asked("t", write_mode="overwrite")


def test_a_writer_id_belongs_to_the_stream_that_had_it_first(place):
    store = open_store(place)
    for _ in range(2):
        WriterLease(store=store, writer_id="orders", session="query-1").claim()

    with pytest.raises(WriterCollisionError, match="another stream"):
        WriterLease(store=store, writer_id="orders", session="query-2").claim()
    WriterLease(store=store, writer_id="returns", session="query-2").claim()


def stream_writer(place, **options):
    """Return what Spark makes anew for each micro-batch, and for each of its commits."""
    schema = StructType().add("id", "long").add("epoch", "integer").add("part", "string")
    return LakehandSource({"path": str(place), **options}).streamWriter(schema, overwrite=False)


def write_batch(place, batch, ids, *, query, **options):
    writer = stream_writer(place, **options)
    message = replace(writer.write(iter([batch_of(ids)])), query=query)
    stream_writer(place, **options).commit([message], batch)


def test_batches_of_a_stream_carry_its_id_or_that_of_its_writer(place):
    for _ in range(2):
        write_batch(place, 0, [1], query="q-1", writer_id="w")
        write_batch(place, 0, [2], query="q-2", writer_id="v")

    assert ids_in(place) == [1, 2]
    assert lakehand.open_table(place).transactions() == {"w": 0, "v": 0}


def test_a_new_checkpoint_does_not_take_a_writer_id_over(place):
    write_batch(place, 0, [1], query="q-1", writer_id="w")
    with pytest.raises(WriterCollisionError, match="another stream"):
        write_batch(place, 0, [2], query="q-2", writer_id="w")
    assert ids_in(place) == [1]


def test_a_stream_without_any_id_is_refused_before_it_writes(place):
    with pytest.raises(ValidationError, match="the stream has no id") as caught:
        stream_writer(place).write(iter([batch_of([1])]))
    assert "option('writer_id'" in caught.value.hint
    assert files_in(place) == set()


def test_what_tasks_wrote_is_deleted_only_if_no_commit_was_tried(place):
    writer = stream_writer(place, writer_id="w")
    written = [replace(writer.write(iter([batch_of([i])])), query="q") for i in range(2)]
    # All tasks have ended well: Spark aborts because of the commit, which may have landed.
    writer.abort(written, 0)
    assert len(files_in(place)) == 2

    writer.abort([*written, None], 0)
    assert files_in(place) == set()


def files_of(message):
    return {file.path for file in Descriptor.from_json(message.descriptor).files}


@pytest.mark.parametrize("is_aborted", [False, True])
def test_what_killed_attempts_left_goes_with_the_write(tmp_path, is_aborted):
    place = tmp_path / "t"
    lakehand.create_table(place, SCHEMA, partition_by=["part"])
    writer, another = stream_writer(place, writer_id="w"), stream_writer(place, writer_id="v")
    under_way = files_of(another.write(iter([batch_of([7, 8])])))
    killed = files_of(writer.write(iter([batch_of([1, 2])])))
    half = f".{writer._job.token}-half.parquet.lakehand-{uuid.uuid4().hex}.tmp"
    (place / "part=p1" / half).touch()
    message = replace(writer.write(iter([batch_of([1, 2])])), query="q", is_retry=True)
    assert len(killed) == 2

    if is_aborted:
        writer.abort([message, None], 0)
    else:
        stream_writer(place, writer_id="w").commit([message], 0)

    kept = set() if is_aborted else files_of(message)
    found = {path.relative_to(place).as_posix() for path in place.rglob("*parquet*")}
    assert {key for key in found if not key.startswith("_delta_log")} == under_way | kept
    assert ids_in(place) == ([] if is_aborted else [1, 2])


def test_a_table_is_listed_only_after_an_attempt_that_did_not_report(place):
    writer = stream_writer(place, writer_id="w")
    killed, message = (writer.write(iter([batch_of([1])])) for _ in range(2))
    stream_writer(place, writer_id="w").commit([replace(message, query="q")], 0)
    assert files_of(killed) <= files_in(place)


def test_a_file_that_a_version_names_is_never_taken_for_a_leftover(place):
    job = begin(place)
    described = run_tasks(job, [1], [2])
    commit(job, described)
    table = lakehand.open_table(place)._handle
    [reported] = described[0].files

    assert delete_unreported(table, token=job.token, reported={reported.path}, since=0) == 0
    assert ids_in(place) == [1, 2]


def test_the_log_of_a_stream_is_folded_as_often_as_its_table_asks_for(place):
    for batch in range(30):
        write_batch(place, batch, [batch], query="q", writer_id="w")

    found = lakehand.open_table(place).inspect()
    assert (found.version, found.commits_since_checkpoint) == (30, 1)
    assert len(list(place.glob("_delta_log/*.checkpoint.parquet"))) == 3
    assert ids_in(place) == list(range(30))


def test_batches_that_come_again_are_known_after_compactions_and_checkpoints(place):
    for batch in range(12):
        for _ in range(2):
            write_batch(place, batch, [batch], query="q", writer_id="w")
        if batch % 4 == 3:
            compact_now(place)

    table = lakehand.open_table(place)
    assert ids_in(place) == list(range(12))
    assert (table.snapshot().file_count, table.transactions()) == (1, {"w": 11})
    assert list(place.glob("_delta_log/*.checkpoint.parquet"))


def test_a_batch_is_written_once_even_if_its_checkpoint_fails(place):
    full = Fault(kind=FaultKind.FAIL_BEFORE, operation="*", key="*.checkpoint.parquet", times=99)
    for first in range(0, 24, 2):
        job = begin(place, store=FaultStore(open_store(place), (full,)))
        commit(job, [job.write([batch_of([first + n])]) for n in range(2)])

    assert full.hits > 0
    assert not list(place.glob("_delta_log/*.checkpoint.parquet"))
    assert ids_in(place) == list(range(24))


def test_files_are_shared_out_by_their_size(place):
    table = lakehand.open_table(place)
    for first in range(0, 50, 10):
        table.append(batch_of(list(range(first, first + 10))))
    snapshot = table.snapshot()
    files = table._handle.data_files(snapshot, range(snapshot.file_count))
    assert [len(one) for one in bins_of(files)] == [5]
    assert bins_of(()) == []
    large = [pickle.loads(pickle.dumps(file)) for file in files]
    object.__setattr__(large[0], "bytes", 300 * 2**20)
    object.__setattr__(large[1], "bytes", 100 * 2**20)
    assert [len(one) for one in bins_of(large)] == [1, 4]
