"""A repair that dies leaves a table that is no worse than before; the next repair ends it."""

from __future__ import annotations

import shutil

import pytest

from lakehand import open_table
from lakehand.observe.steps import Step
from support import damage
from support.crash import kill_at, run_and_kill
from support.damage import ids_of, make_whole_table, read_ids

FOUND = {"missing_commit", "corrupt_commit", "broken_checkpoint", "stale_last_checkpoint"}
FOUND |= {"missing_last_checkpoint"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_whole_table(tmp_path_factory.mktemp("repair") / "table")


@pytest.fixture
def path(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "table")


def repair(path: str) -> None:
    open_table(path).repair(accept_data_loss=True)


def finish(path) -> None:
    """Look at what the dead repair left, and repair again."""
    table = open_table(path)
    assert {finding.name for finding in table.verify(proofs=False).findings} <= FOUND
    repair(str(path))
    assert table.verify(proofs=False).outcome == "sound"


@kill_at(Step.REPAIR_COPIED, Step.REPAIR_FORGETTING)
def test_versions_that_were_being_forgotten_are_forgotten(path, step):
    damage.cut_commit(path)
    cut = damage.commit_file(path, 3).read_bytes()
    run_and_kill(step, repair, str(path))
    # The broken commit is the last to go: as long as it is there nobody takes its number.
    assert damage.commit_file(path, 3).read_bytes() == cut
    finish(path)
    assert read_ids(path) == ids_of(0, 1, 2)
    [aside] = list((path / "_lakehand" / "aside").glob(f"*/_delta_log/{4:020}.json"))[:1]
    assert aside.stat().st_size > 0


@kill_at(Step.REPAIR_COPIED, Step.REPAIR_FORGETTING)
def test_history_that_was_being_forgotten_is_forgotten(path, step):
    damage.lose_commit(1)(path)
    occurrence = 2 if step is Step.REPAIR_COPIED else 1
    run_and_kill(step, repair, str(path), occurrence=occurrence)
    assert read_ids(path) == ids_of(0, 1, 2, 3, 4)
    finish(path)
    assert read_ids(path) == ids_of(0, 1, 2, 3, 4)
    assert open_table(path).history()[-1].version == 2


@kill_at(Step.REPAIR_COPIED, Step.REPAIR_SET_ASIDE, Step.CHECKPOINT_WRITTEN)
def test_a_checkpoint_that_was_being_replaced_is_replaced(path, step):
    damage.break_checkpoint(path)
    run_and_kill(step, repair, str(path))
    assert read_ids(path) == ids_of(0, 1, 2, 3, 4)
    finish(path)
    # Without any checkpoint nothing is wrong any more: the next commit writes one when it is due.
    expected = None if step is Step.REPAIR_SET_ASIDE else 2
    assert open_table(path).inspect().checkpoint_version == expected


@kill_at(Step.COMMIT_PREPARED, Step.COMMIT_CONFIRMED)
def test_lost_files_leave_the_table_once(path, step):
    damage.lose_file(path)
    run_and_kill(step, repair, str(path))
    repair(str(path))
    assert read_ids(path) == ids_of(0, 1, 2, 3)
    assert [entry.operation for entry in open_table(path).history()].count("REPAIR") == 1
