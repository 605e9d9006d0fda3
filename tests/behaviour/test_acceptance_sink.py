"""The acceptance tests that descriptions of such sinks name, under their names."""

from __future__ import annotations

import json
import threading

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRsTable

import lakehand
from lakehand.errors import BackpressureError, NotATableError, ValidationError
from lakehand.sink import EpochState, SinkCommitter, TableSink
from lakehand.storage.location import path_to_url
from support.sinks import SCHEMA, batch_of, ids_in


def epoch(sink, number, ids) -> None:
    sink.begin_epoch(number)
    sink.write(batch_of(ids, number))
    sink.commit_epoch()


def data_files(place) -> list:
    return sorted(path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)


def test_open_creates_table(tmp_path):
    with TableSink(tmp_path, writer_id="w", schema=SCHEMA, partition_by="part") as sink:
        assert sink.last_committed_epoch is None

    table = lakehand.open_table(tmp_path)
    assert table.schema() == SCHEMA
    assert table.snapshot().partition_columns == ("part",)
    assert table.to_arrow().num_rows == 0


def test_open_existing_table(tmp_path):
    lakehand.create_table(tmp_path, SCHEMA).append(batch_of([1]))

    with TableSink(tmp_path, writer_id="w") as sink:
        epoch(sink, 1, [2, 3])

    assert ids_in(tmp_path) == [1, 2, 3]


def test_open_nonexistent_without_schema_fails(tmp_path):
    with pytest.raises(NotATableError, match="none may be created"):
        TableSink(tmp_path / "t", writer_id="w", create_table=False).open()

    with TableSink(tmp_path / "t", writer_id="w") as sink, pytest.raises(NotATableError):
        sink.schema  # noqa: B018
    assert not (tmp_path / "t").exists()


def test_write_batch_creates_parquet(tmp_path):
    with TableSink(tmp_path, writer_id="w", partition_by="part") as sink:
        epoch(sink, 1, [3, 4, 5])

    tables = [pq.ParquetFile(file).read() for file in data_files(tmp_path)]
    assert sorted(i for table in tables for i in table["id"].to_pylist()) == [3, 4, 5]
    assert [file.parent.name for file in data_files(tmp_path)] == ["part=p0", "part=p1", "part=p2"]
    assert DeltaRsTable(str(tmp_path)).to_pyarrow_table().num_rows == 3


def test_exactly_once_epoch_skip(tmp_path):
    with TableSink(tmp_path, writer_id="w") as sink:
        epoch(sink, 1, [1])
        epoch(sink, 2, [2])

    with TableSink(tmp_path, writer_id="w") as sink:
        assert sink.last_committed_epoch == 2
        assert not sink.begin_epoch(2)
        assert sink.epoch_state is EpochState.SKIPPED
        assert sink.write(batch_of([2])) == 0
        assert sink.pre_commit() is None
        assert sink.commit_epoch() is None
        assert sink.begin_epoch(3)
        assert sink.write(batch_of([3])) == 1
        sink.commit_epoch()

    assert ids_in(tmp_path) == [1, 2, 3]


def test_multiple_epochs_sequential(tmp_path):
    with TableSink(tmp_path, writer_id="w") as sink:
        versions = []
        for number in range(12):
            sink.begin_epoch(number)
            sink.write(batch_of([number], number))
            versions.append(sink.commit_epoch().version)

    assert versions == list(range(1, 13))
    assert ids_in(tmp_path) == list(range(12))
    # The mark survives the checkpoint that was due meanwhile.
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    assert lakehand.open_table(tmp_path).transactions() == {"w": 11}


def test_get_table_schema(tmp_path):
    with TableSink(tmp_path, writer_id="w", schema=SCHEMA) as sink:
        assert sink.schema == SCHEMA


def test_write_empty_batches(tmp_path):
    with TableSink(tmp_path, writer_id="w", schema=SCHEMA) as sink:
        sink.begin_epoch(1)
        assert sink.write(batch_of([])) == 0
        assert sink.commit_epoch() is None
        epoch(sink, 2, [7])

    assert ids_in(tmp_path) == [7]
    assert lakehand.open_table(tmp_path).snapshot().version == 1


def test_write_multiple_batches(tmp_path):
    with TableSink(tmp_path, writer_id="w", max_buffer_records=10) as sink:
        sink.begin_epoch(1)
        taken = [sink.write(batch_of(list(range(n * 5, n * 5 + 5)))) for n in range(8)]
        sink.commit_epoch()

    assert taken == [5] * 8
    assert ids_in(tmp_path) == list(range(40))
    assert len(data_files(tmp_path)) == 1


def test_path_to_url_local(tmp_path):
    assert path_to_url(tmp_path / "t") == f"file://{tmp_path}/t"


@pytest.mark.parametrize(
    ("path", "url"),
    [
        pytest.param("s3://lake/t/", "s3://lake/t", id="path_to_url_s3"),
        pytest.param("az://lake/t", "az://lake/t", id="path_to_url_azure"),
        pytest.param("gs://lake/t", "gs://lake/t", id="path_to_url_gcs"),
    ],
)
def test_path_to_url(path, url):
    assert path_to_url(path) == url


def test_rollback_after_pre_commit_discards_staged(tmp_path):
    with TableSink(tmp_path, writer_id="w", schema=SCHEMA) as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1, 2]))
        sink.pre_commit()
        assert len(data_files(tmp_path)) == 1
        sink.rollback_epoch()
        assert data_files(tmp_path) == []
        epoch(sink, 1, [3])

    assert ids_in(tmp_path) == [3]


def test_exactly_once_buffer_backpressure(tmp_path):
    with TableSink(tmp_path, writer_id="w", schema=SCHEMA, max_buffer_records=10) as sink:
        release = threading.Event()
        sink.begin_epoch(1)
        hold = sink._opened_context.writer_thread.start(lambda: release.wait(20))
        sink.write(batch_of(list(range(40))))
        with pytest.raises(BackpressureError) as refused:
            sink.write(batch_of([99]))
        release.set()
        hold.result()
        sink.flush()
        sink.write(batch_of([40]))
        sink.commit_epoch()

    assert refused.value.retryable
    assert ids_in(tmp_path) == list(range(41))


def writers(place, number, ids_by_writer) -> list[str]:
    """Write one epoch with several writers and return what they send to the committer."""
    sent = []
    for name, ids in ids_by_writer.items():
        with TableSink(place, writer_id=name, pipeline="orders") as sink:
            if sink.begin_epoch(number):
                sink.write(batch_of(ids, number))
                sent.append(sink.pre_commit().to_json())
                sink.commit_epoch()
    return sent


def test_designated_committer_one_commit_from_many_writers(tmp_path):
    sent = writers(tmp_path, 1, {"a": [1, 2], "b": [3], "c": [4]})
    assert ids_in(tmp_path) == []

    with SinkCommitter(tmp_path, pipeline="orders") as committer:
        assert committer.commit(1, sent).version == 1
        assert committer.commit(1, sent) is None

    assert ids_in(tmp_path) == [1, 2, 3, 4]
    assert lakehand.open_table(tmp_path).transactions() == {"orders": 1}


def test_coordinated_recovery_reads_committer_epoch(tmp_path):
    sent = writers(tmp_path, 1, {"a": [1], "b": [2]})
    with SinkCommitter(tmp_path, pipeline="orders") as committer:
        committer.commit(1, sent)

    assert writers(tmp_path, 1, {"a": [1], "b": [2]}) == []
    with SinkCommitter(tmp_path, pipeline="orders") as committer:
        assert committer.last_committed_epoch == 1
        assert committer.commit(1, sent) is None
        committer.commit(2, writers(tmp_path, 2, {"a": [3]}))
    with SinkCommitter(tmp_path, pipeline="another") as committer:
        assert committer.last_committed_epoch is None

    assert ids_in(tmp_path) == [1, 2, 3]


def test_a_descriptor_of_an_unknown_version_is_rejected(tmp_path):
    [text] = writers(tmp_path, 1, {"a": [1]})
    newer = json.dumps({**json.loads(text), "version": 2})

    with (
        SinkCommitter(tmp_path, pipeline="orders") as committer,
        pytest.raises(ValidationError, match="version 2 cannot be read"),
    ):
        committer.commit(1, [newer])

    assert ids_in(tmp_path) == []
