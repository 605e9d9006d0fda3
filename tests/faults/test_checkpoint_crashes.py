"""A checkpoint that dies on its way leaves the table as it was, and the next one finishes."""

from __future__ import annotations

import shutil


from lakehand.formats.delta.checkpoint import write_checkpoint
from lakehand.observe.steps import Step
from lakehand.storage import open_store
from support.crash import kill_at, run_and_kill
from support.delta_tables import RECIPES, without_commits_before


def checkpoint(path: str) -> None:
    write_checkpoint(open_store(path))


def assert_unharmed_and_finished_later(oracle, table, expected):
    shutil.copytree(table, table.with_name("after-crash"))
    assert oracle.rows(table.with_name("after-crash")) == expected

    receipt = write_checkpoint(open_store(table))

    assert receipt.is_pointed_to
    copy = without_commits_before(receipt.version, table, table.with_name("finished"))
    assert oracle.rows(copy) == expected


@kill_at(Step.CHECKPOINT_WRITTEN, Step.CHECKPOINT_POINTED)
def test_a_classic_checkpoint_that_is_killed_does_no_harm(oracle, tmp_path, step):
    RECIPES["deletion_vectors"].make(oracle, tmp_path / "t")
    expected = oracle.rows(tmp_path / "t")

    run_and_kill(step, checkpoint, str(tmp_path / "t"))

    assert_unharmed_and_finished_later(oracle, tmp_path / "t", expected)


@kill_at(Step.CHECKPOINT_SIDECARS, Step.CHECKPOINT_WRITTEN, Step.CHECKPOINT_POINTED)
def test_a_v2_checkpoint_that_is_killed_does_no_harm(oracle, tmp_path, step):
    RECIPES["v2_checkpoint"].make(oracle, tmp_path / "t")
    expected = oracle.rows(tmp_path / "t")

    run_and_kill(step, checkpoint, str(tmp_path / "t"))

    assert_unharmed_and_finished_later(oracle, tmp_path / "t", expected)
