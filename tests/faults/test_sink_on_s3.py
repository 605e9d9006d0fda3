"""The promises of a sink, on a real S3 server."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.errors import WriterCollisionError
from lakehand.observe.steps import Step
from lakehand.sink import SinkCommitter, TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.crash import kill_at, run_and_kill
from support.sinks import SCHEMA, batch_of, expected_ids, ids_in, write_epochs


@pytest.fixture
def uri(s3_server):
    return s3_server.new_uri()


@pytest.fixture
def options(s3_server):
    return {"storage_options": s3_server.options}


def write_epoch(sink, number, ids):
    sink.begin_epoch(number)
    sink.write(batch_of(ids, number))
    return sink.commit_epoch()


def test_the_first_rows_create_a_table_and_epochs_in_it_are_skipped(uri, options):
    with TableSink(uri, writer_id="w", partition_by="part", **options) as sink:
        write_epoch(sink, 1, [1, 2])
        write_epoch(sink, 2, [3])
    with TableSink(uri, writer_id="w", **options) as sink:
        assert sink.last_committed_epoch == 2
        assert write_epoch(sink, 2, [3]) is None
        write_epoch(sink, 3, [4])

    assert ids_in(uri, **options) == [1, 2, 3, 4]
    assert lakehand.open_table(uri, **options).snapshot().partition_columns == ("part",)


def test_one_committer_commits_for_writers(uri, options):
    sent = []
    for name, ids in {"a": [1, 2], "b": [3]}.items():
        with TableSink(uri, writer_id=name, pipeline="orders", **options) as sink:
            sink.begin_epoch(1)
            sink.write(batch_of(ids))
            sent.append(sink.pre_commit().to_json())

    with SinkCommitter(uri, pipeline="orders", **options) as committer:
        committer.commit(1, sent)
        assert committer.commit(1, sent) is None

    assert ids_in(uri, **options) == [1, 2, 3]


def test_a_commit_whose_answer_is_lost_is_there_once(uri, s3_server, options):
    lakehand.create_table(uri, SCHEMA, **options)
    fault = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key="_delta_log/*")
    with TableSink(FaultStore(open_store(uri, s3_server.options), [fault]), writer_id="w") as sink:
        assert write_epoch(sink, 1, [1, 2]).version == 1

    assert fault.hits == 1
    assert ids_in(uri, **options) == [1, 2]


def test_the_older_of_two_sinks_with_one_writer_id_is_told(uri, options):
    with (
        TableSink(uri, writer_id="w", schema=SCHEMA, **options) as older,
        TableSink(uri, writer_id="w", **options) as newer,
    ):
        older.begin_epoch(1)
        older.write(batch_of([1]))
        write_epoch(newer, 1, [1])
        with pytest.raises(WriterCollisionError):
            older.commit_epoch()

    assert ids_in(uri, **options) == [1]


def write_on_s3(uri: str, epochs: int, storage_options: dict[str, str]) -> None:
    write_epochs(uri, epochs, storage_options=storage_options, partition_by="part")


@kill_at(Step.SINK_STAGED, Step.COMMIT_PUT, Step.SINK_COMMITTED)
def test_a_killed_writer_goes_on_where_it_stopped(uri, s3_server, options, step):
    run_and_kill(step, write_on_s3, uri, 3, s3_server.options, occurrence=2)

    write_on_s3(uri, 3, s3_server.options)

    assert ids_in(uri, **options) == expected_ids(3)
