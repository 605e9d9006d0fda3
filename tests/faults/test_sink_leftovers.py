"""What a killed sink left is deleted by the next one under its id, and nothing else is."""

from __future__ import annotations

import json

import pytest

import lakehand
from lakehand.errors import WriterCollisionError
from lakehand.observe.steps import Step
from lakehand.sink import TableSink
from support.crash import run_and_kill
from support.sinks import SCHEMA, batch_of, expected_ids, ids_in, write_epochs


def unnamed_files(place):
    named = set(lakehand.open_table(place).snapshot().files["path"].to_pylist())
    found = [path.relative_to(place).as_posix() for path in place.rglob("*lakehand-*parquet*")]
    return [path for path in found if path not in named]


def write_parts(place: str, epochs: int) -> None:
    write_epochs(place, epochs, partition_by="part")


def write_more(place, writer, *epochs):
    with TableSink(place, writer_id=writer) as sink:
        for epoch in epochs:
            sink.begin_epoch(epoch)
            sink.write(batch_of([epoch], epoch))
            sink.commit_epoch()
        return sink._opened_context.metrics


@pytest.mark.parametrize("step", [Step.SINK_STAGED, Step.COMMIT_PREPARED])
def test_files_of_a_killed_sink_are_deleted_after_the_next_commit(tmp_path, step):
    write_parts(str(tmp_path), 2)
    run_and_kill(step, write_parts, str(tmp_path), 5)
    assert unnamed_files(tmp_path)

    write_parts(str(tmp_path), 3)

    assert ids_in(tmp_path) == expected_ids(3)
    assert unnamed_files(tmp_path) == []


def test_sinks_that_died_one_after_the_other_are_all_tidied_up_after(tmp_path):
    write_parts(str(tmp_path), 1)
    for _ in range(3):
        run_and_kill(Step.SINK_STAGED, write_parts, str(tmp_path), 5)
    assert len(unnamed_files(tmp_path)) >= 3

    assert write_more(tmp_path, "writer-1", 2).leftovers_deleted >= 3

    assert unnamed_files(tmp_path) == []
    assert [s["earlier"] for s in signs(tmp_path)] == [[]]


def signs(place):
    return [json.loads(path.read_text()) for path in place.glob("_lakehand/writers/*/*")]


def test_committed_files_and_those_of_other_writers_stay(tmp_path):
    write_more(tmp_path, "w", 1, 2)
    other = TableSink(tmp_path, writer_id="other").open()
    other.begin_epoch(1)
    other.write(batch_of([77], 1))
    other.pre_commit()
    run_and_kill(Step.SINK_COMMITTED, write_more_and_stop, str(tmp_path), 3)

    metrics = write_more(tmp_path, "w", 4)

    assert metrics.leftovers_deleted == 0
    other.commit_epoch()
    other.close()
    assert ids_in(tmp_path) == [1, 2, 3, 4, 77]


def write_more_and_stop(place: str, epoch: int) -> None:
    write_more(place, "w", epoch)


def test_a_sink_that_was_thought_dead_loses_to_the_one_that_tidied_up(tmp_path):
    write_more(tmp_path, "w", 1)
    slow = TableSink(tmp_path, writer_id="w").open()
    slow.begin_epoch(2)
    slow.write(batch_of([99], 2))
    slow.pre_commit()

    assert write_more(tmp_path, "w", 2).leftovers_deleted == 1

    with pytest.raises(WriterCollisionError):
        slow.commit_epoch()
    assert ids_in(tmp_path) == [1, 2]
    assert unnamed_files(tmp_path) == []


def test_a_sink_that_ended_well_is_not_tidied_up_after(tmp_path):
    write_more(tmp_path, "w", 1, 2)
    assert [(s["earlier"], s["has_ended"]) for s in signs(tmp_path)] == [([], True)]

    with TableSink(tmp_path, writer_id="w") as sink:
        sink.begin_epoch(3)
        assert sink._delivery._earlier == frozenset()


FORGETFUL = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}


def die_after(place, *epochs):
    """Commit epochs, and never close the sink."""
    sink = TableSink(place, writer_id="w").open()
    for epoch in epochs:
        sink.begin_epoch(epoch)
        sink.write(batch_of([epoch], epoch))
        sink.commit_epoch()
    return sink


def test_a_table_that_forgot_its_marks_keeps_the_files_of_its_versions(tmp_path):
    table = lakehand.create_table(tmp_path, SCHEMA, properties=FORGETFUL)
    die_after(tmp_path, 0, 1, 2)
    table.checkpoint()
    assert lakehand.open_table(tmp_path)._handle.head().transactions == {}

    assert write_more(tmp_path, "w", 3).leftovers_deleted == 0

    assert ids_in(tmp_path) == [0, 1, 2, 3]


def test_epochs_that_are_counted_anew_keep_the_files_of_those_from_before(tmp_path):
    table = lakehand.create_table(tmp_path, SCHEMA, properties=FORGETFUL)
    died = die_after(tmp_path, 0, 1, 2)
    table.checkpoint()
    write_more(tmp_path, "w", 0)
    # As if that sink had been killed before it said that nothing is left.
    sign = next(tmp_path.glob("_lakehand/writers/*/*"))
    told = {"writer_id": "w", "session": "0" * 32, "earlier": [died._opened_context.session]}
    sign.write_text(json.dumps(told))

    assert write_more(tmp_path, "w", 2).leftovers_deleted == 0

    assert ids_in(tmp_path) == [0, 0, 1, 2, 2]
