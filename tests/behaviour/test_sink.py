"""What a sink promises beside its acceptance tests: typed answers to whatever it is given."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    ConstraintError,
    EpochGapError,
    RefusedError,
    ReplanError,
    SchemaMismatchError,
    SinkStateError,
    ValidationError,
    WriterCollisionError,
    WriteTimeoutError,
)
from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.model.work import Change
from lakehand.sink import Descriptor, SinkCommitter, TableSink
from support.sinks import SCHEMA, batch_of, ids_in


@pytest.fixture
def place(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA)
    return tmp_path / "t"


def write_epoch(sink, number, ids):
    sink.begin_epoch(number)
    sink.write(batch_of(ids, number))
    return sink.commit_epoch()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delivery": "exactly-once"}, "requires writer_id"),
        ({"writer_id": " "}, "must not be empty"),
        ({"max.buffer.records": 0}, "at least 1"),
        ({"target.file.size": 0}, "at least 1"),
        ({"checkpoint.interval": 0}, "at least 1"),
        ({"write.timeout.ms": 4999}, "at least 5 s"),
        ({"parquet.compression": "brotlidy"}, "not one of zstd"),
        ({"parquet.bloom.fpp": 1}, "not between 0 and 1"),
        ({"where": "part = 'p1'"}, "write_mode is append"),
        ({"write.mode": "upsert"}, "needs the columns"),
        ({"type.widening": "true"}, "schema_evolution, which allows any change, is off"),
        ({"catalog.type": "glue"}, "not supported yet"),
        ({"pipeline": "p"}, "append exactly once"),
        ({"writer.identity": "w"}, "no setting named"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_before_anything_is_opened(place, options, error):
    with pytest.raises((ValidationError, RefusedError), match=error):
        TableSink(place, **options)


def test_calls_out_of_order_are_refused(place):
    sink = TableSink(place, writer_id="w")
    with pytest.raises(SinkStateError, match="not open"):
        sink.write(batch_of([1]))
    with sink:
        with pytest.raises(SinkStateError, match="no epoch has begun"):
            sink.write(batch_of([1]))
        sink.begin_epoch(1)
        with pytest.raises(SinkStateError, match="before epoch 1 is over"):
            sink.begin_epoch(2)
        sink.pre_commit()
        with pytest.raises(SinkStateError, match="takes no rows"):
            sink.write(batch_of([1]))
    with pytest.raises(SinkStateError, match="not open"):
        sink.begin_epoch(2)
    with pytest.raises(SinkStateError, match="opened once"):
        sink.open()


def test_a_closed_sink_has_rolled_back_what_was_not_committed(place):
    with TableSink(place, writer_id="w") as sink:
        write_epoch(sink, 1, [1])
        sink.begin_epoch(2)
        sink.write(batch_of([2]))
        sink.pre_commit()

    assert ids_in(place) == [1]
    assert len(list(place.glob("*.parquet"))) == 1
    assert lakehand.open_table(place).transactions() == {"w": 1}


def test_rows_of_another_schema_are_refused_and_those_before_them_kept(place):
    wrong = pa.table({"id": ["one"], "epoch": [1], "party": ["p"]})
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        with pytest.raises(SchemaMismatchError) as refused:
            sink.write(wrong)
        sink.commit_epoch()

    assert set(refused.value.difference) == {
        "column 'party' is not in the table: string",
        "column 'id' is string, and the table has int64",
        "column 'epoch' is int64, and the table has int32",
    }
    assert ids_in(place) == [1]


def test_columns_may_come_in_any_order_and_be_left_out(place):
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"PART": ["x"], "id": pa.array([7], pa.int8())}))
        sink.commit_epoch()

    [row] = lakehand.open_table(place).to_arrow().to_pylist()
    assert row == {"id": 7, "epoch": None, "part": "x"}


def test_a_batch_larger_than_the_buffer_is_taken_when_it_is_alone(place):
    with TableSink(place, writer_id="w", max_buffer_records=10) as sink:
        sink.begin_epoch(1)
        assert sink.write(batch_of(list(range(1_000)))) == 1_000
        sink.commit_epoch()

    assert ids_in(place) == list(range(1_000))


def test_a_reader_is_refused_because_nobody_knows_its_size(place):
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        with pytest.raises(ValidationError, match="not a reader"):
            sink.write(pa.table({"id": [1]}).to_reader())


def test_missing_epochs_are_noticed(place, caplog):
    with TableSink(place, writer_id="w") as sink, caplog.at_level(logging.WARNING, "lakehand"):
        write_epoch(sink, 4, [4])
        write_epoch(sink, 7, [7])
        assert sink.metrics.epoch_gaps == 2

    assert "2 before it are missing" in caplog.text
    assert ids_in(place) == [4, 7]


def test_missing_epochs_may_be_refused_and_empty_ones_then_leave_a_mark(place):
    with TableSink(place, writer_id="w", epoch_gaps="refuse") as sink:
        write_epoch(sink, 1, [1])
        write_epoch(sink, 2, [])
    with TableSink(place, writer_id="w", epoch_gaps="refuse") as sink:
        assert sink.last_committed_epoch == 2
        with pytest.raises(EpochGapError, match="epoch 4 begins, and 1 before it are missing"):
            sink.begin_epoch(4)
        write_epoch(sink, 3, [3])

    assert ids_in(place) == [1, 3]


def test_the_older_of_two_sinks_with_one_writer_id_is_told(place):
    with TableSink(place, writer_id="w") as older, TableSink(place, writer_id="w") as newer:
        write_epoch(older, 1, [1])
        newer.begin_epoch(1)
        older.begin_epoch(2)
        older.write(batch_of([2]))
        with pytest.raises(WriterCollisionError, match="another process has opened a sink"):
            older.commit_epoch()
        older.rollback_epoch()

    assert ids_in(place) == [1]


def test_an_epoch_that_another_process_commits_first_is_a_collision(place, monkeypatch):
    monkeypatch.setattr("lakehand.sink.writer_lease.WriterLease.check", lambda *_, **__: None)
    with TableSink(place, writer_id="w") as late, TableSink(place, writer_id="w") as quick:
        late.begin_epoch(1)
        late.write(batch_of([10]))
        write_epoch(quick, 1, [1])
        with pytest.raises(WriterCollisionError, match="while epoch 1 was written"):
            late.commit_epoch()
        late.rollback_epoch()
        # It has looked again, and found what the other one wrote.
        assert not late.begin_epoch(1)
        late.rollback_epoch()

    assert ids_in(place) == [1]


def test_writers_with_names_of_their_own_do_not_meet(place):
    with TableSink(place, writer_id="a") as a, TableSink(place, writer_id="b") as b:
        for number in range(1, 4):
            a.begin_epoch(number)
            a.write(batch_of([number]))
            write_epoch(b, number, [100 + number])
            a.commit_epoch()

    assert ids_in(place) == [1, 2, 3, 101, 102, 103]
    assert lakehand.open_table(place).transactions() == {"a": 3, "b": 3}


def test_at_least_once_commits_when_enough_rows_wait_and_at_its_end(place):
    with TableSink(place, max_buffer_records=10) as sink:
        for number in range(25):
            sink.write(batch_of([number]))
        sink.flush()
        sink.write(batch_of([25]))

    assert ids_in(place) == list(range(26))
    assert lakehand.open_table(place).snapshot().version >= 3
    assert lakehand.open_table(place).transactions() == {}


def test_at_least_once_commits_rows_that_have_waited_long_enough(place):
    with TableSink(place, **{"max.buffer.duration.ms": 20}) as sink:
        committed = threading.Event()
        sink._opened_context.background.on_commit = lambda _version: committed.set()
        sink.write(batch_of([1]))
        assert committed.wait(100)
        assert ids_in(place) == [1]


def test_an_overwriting_sink_replaces_the_table_epoch_by_epoch(place):
    with TableSink(place, writer_id="w", write_mode="overwrite") as sink:
        write_epoch(sink, 1, [1, 2, 3])
        assert ids_in(place) == [1, 2, 3]
        write_epoch(sink, 2, [9])

    assert ids_in(place) == [9]
    with TableSink(place, writer_id="w", write_mode="overwrite") as sink:
        assert not sink.begin_epoch(1)


def test_the_pressure_of_waiting_rows_may_be_waited_out(place):
    with TableSink(place, writer_id="w", max_buffer_records=5, on_backpressure="wait") as sink:
        sink.begin_epoch(1)
        for number in range(200):
            sink.write(batch_of([number]))
        sink.commit_epoch()

    assert ids_in(place) == list(range(200))


def test_a_committer_refuses_files_that_their_writer_has_given_up(place):
    with TableSink(place, writer_id="a", pipeline="orders") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        described = sink.pre_commit()
    assert Descriptor.from_json(described.to_json()) == described
    (place / described.files[0].path).unlink()

    with (
        SinkCommitter(place, pipeline="orders") as committer,
        pytest.raises(ValidationError, match="is not in"),
    ):
        committer.commit(1, [described])

    assert ids_in(place) == []


def test_files_of_a_writer_that_rolls_back_after_it_described_them_stay(place):
    with TableSink(place, writer_id="a", pipeline="orders") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        described = sink.pre_commit()
        sink.rollback_epoch()

    with SinkCommitter(place, pipeline="orders") as committer:
        committer.commit(1, [described])

    assert ids_in(place) == [1]


def test_two_pipelines_of_one_table_do_not_skip_each_other(place):
    for pipeline in ("orders", "returns"):
        with TableSink(place, writer_id="a", pipeline=pipeline) as sink:
            assert sink.begin_epoch(1)
            sink.write(batch_of([len(pipeline)]))
            described = sink.pre_commit()
        with SinkCommitter(place, pipeline=pipeline) as committer:
            committer.commit(1, [described])

    assert ids_in(place) == [6, 7]


def test_a_commit_that_took_too_long_is_not_rolled_back_once_it_has_landed(place, monkeypatch):
    may_commit = threading.Event()
    commit_files = lakehand.sink.transaction.commit_files

    def slowly(*arguments, **options):
        assert may_commit.wait(100)
        return commit_files(*arguments, **options)

    monkeypatch.setattr("lakehand.sink.transaction.commit_files", slowly)
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        sink.pre_commit()
        monkeypatch.setattr(sink._opened_context.writer_thread, "_timeout_seconds", 0.01)
        with pytest.raises(WriteTimeoutError, match="commit of epoch 1 is not done"):
            sink.commit_epoch()
        monkeypatch.setattr(sink._opened_context.writer_thread, "_timeout_seconds", 20)
        may_commit.set()
        sink.rollback_epoch()
        assert sink.last_committed_epoch == 1
        assert not sink.begin_epoch(1)

    assert ids_in(place) == [1]


def alter(place, **changes) -> None:
    """Commit other metadata, as an ALTER TABLE of another engine does."""
    table = lakehand.open_table(place)._handle
    state = table.head().native
    metadata = replace(state.metadata, **changes)
    change = Change(
        kind="metadata",
        base_version=state.segment.version,
        operation="SET TBLPROPERTIES",
        native=({"metaData": metadata.to_json()},),
    )
    table.commit(change, token=str(uuid.uuid4()))


def test_an_epoch_survives_a_change_of_properties(place):
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        sink.pre_commit()
        alter(place, configuration={"delta.logRetentionDuration": "interval 40 days"})
        sink.commit_epoch()

    assert ids_in(place) == [1]


def test_an_epoch_written_for_other_columns_is_written_again_for_those_there_are(place):
    wider = from_arrow(SCHEMA.append(pa.field("more", pa.string()))).to_json()
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1], 1))
        sink.pre_commit()
        alter(place, schema_string=wider)
        sink.commit_epoch()

    [row] = lakehand.open_table(place).to_arrow().to_pylist()
    assert row == {"id": 1, "epoch": 1, "part": "p1", "more": None}
    assert len(list(place.glob("*.parquet"))) == 1


def test_an_epoch_that_does_not_fit_what_became_of_the_table_is_refused(place):
    narrower = from_arrow(SCHEMA.remove(1)).to_json()
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        sink.pre_commit()
        alter(place, schema_string=narrower)
        with pytest.raises(SchemaMismatchError, match="'epoch' is not in the table"):
            sink.commit_epoch()
        sink.rollback_epoch()

    assert ids_in(place) == []
    assert list(place.glob("*.parquet")) == []


def test_a_committer_refuses_files_that_were_written_for_other_columns(place):
    with TableSink(place, writer_id="a", pipeline="orders") as sink:
        sink.begin_epoch(1)
        sink.write(batch_of([1]))
        described = sink.pre_commit()
    alter(place, schema_string=from_arrow(SCHEMA.append(pa.field("more", pa.int8()))).to_json())

    with SinkCommitter(place, pipeline="orders") as committer, pytest.raises(ReplanError):
        committer.commit(1, [described])

    assert ids_in(place) == []


def describe_all(sinks, epoch):
    """Let each writer of a pipeline write one row, and say so."""
    for number, sink in enumerate(sinks):
        sink.begin_epoch(epoch)
        sink.write(batch_of([10 * epoch + number], epoch))
        yield sink.pre_commit().to_json()


def test_writers_of_a_pipeline_go_on_after_their_table_was_altered(place):
    wider = from_arrow(SCHEMA.append(pa.field("more", pa.string()))).to_json()
    sinks = [TableSink(place, writer_id=name, pipeline="orders").open() for name in "ab"]
    with SinkCommitter(place, pipeline="orders") as committer:
        committer.commit(1, describe_all(sinks, 1))
        for sink in sinks:
            sink.commit_epoch()
        alter(place, schema_string=wider)

        with pytest.raises(ReplanError, match="its columns or its protocol have changed") as caught:
            committer.commit(2, describe_all(sinks, 2))
        assert "write the epoch again" in caught.value.hint
        assert ids_in(place) == [10, 11]
        for sink in sinks:
            sink.rollback_epoch()
        committer.commit(2, describe_all(sinks, 2))
        for sink in sinks:
            sink.commit_epoch()
            sink.close()

    found = {row["id"]: row for row in lakehand.open_table(place).to_arrow().to_pylist()}
    assert sorted(found) == ids_in(place) == [10, 11, 20, 21]
    assert found[21] == {"id": 21, "epoch": 2, "part": "p0", "more": None}
    assert lakehand.open_table(place).transactions() == {"orders": 2}


def test_files_that_lost_to_an_alteration_are_refused_when_they_come_again(place, monkeypatch):
    commit_files = lakehand.sink.transaction.commit_files

    def after_others(*arguments, **options):
        monkeypatch.undo()
        alter(place, configuration={"delta.constraints.large": "id > 1000"})
        return commit_files(*arguments, **options)

    with (
        TableSink(place, writer_id="a", pipeline="orders") as sink,
        SinkCommitter(place, pipeline="orders") as committer,
    ):
        described = list(describe_all([sink], 1))
        monkeypatch.setattr("lakehand.sink.transaction.commit_files", after_others)
        for _ in range(3):
            with pytest.raises(ReplanError, match="written for another table"):
                committer.commit(1, described)
        sink.rollback_epoch()
        sink.begin_epoch(1)
        with pytest.raises(ConstraintError, match="'large'"):
            sink.write(batch_of([10], 1))

    assert ids_in(place) == []


def test_a_writer_may_be_older_than_the_log(place):
    with TableSink(place, writer_id="a", pipeline="orders") as sink:
        for number in range(1, 12):
            lakehand.open_table(place).append(batch_of([number]))
        for path in sorted(place.glob("_delta_log/*.json"))[:10]:
            path.unlink()
        with SinkCommitter(place, pipeline="orders") as committer:
            committer.commit(1, describe_all([sink], 1))
        sink.commit_epoch()

    assert ids_in(place) == sorted([*range(1, 12), 10])
