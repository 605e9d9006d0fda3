"""A writer that is killed at any point, and started again, has written every epoch once."""

from __future__ import annotations

import lakehand
from lakehand.observe.steps import Step
from support.crash import kill_at, run_and_kill
from support.sinks import expected_ids, ids_in, write_epochs

STEPS = (
    Step.SINK_WRITING,
    Step.SINK_STAGED,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.SINK_COMMITTED,
)


def write_parts(place: str, epochs: int) -> None:
    write_epochs(place, epochs, partition_by="part")


@kill_at(*STEPS)
def test_a_killed_writer_goes_on_where_it_stopped(tmp_path, step):
    run_and_kill(step, write_parts, str(tmp_path), 5, occurrence=3)

    write_parts(str(tmp_path), 5)

    assert ids_in(tmp_path) == expected_ids(5)
    assert lakehand.open_table(tmp_path).transactions() == {"writer-1": 5}


@kill_at(Step.COMMIT_PUT)
def test_a_writer_killed_before_it_knows_of_its_commit_skips_the_epoch(tmp_path, step):
    write_epochs(tmp_path, 1)
    run_and_kill(step, write_epochs, str(tmp_path), 2)
    assert ids_in(tmp_path) == expected_ids(2)
    version = lakehand.open_table(tmp_path).snapshot().version

    write_epochs(tmp_path, 2)

    assert ids_in(tmp_path) == expected_ids(2)
    assert lakehand.open_table(tmp_path).snapshot().version == version
