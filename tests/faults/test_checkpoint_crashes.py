"""A checkpoint that dies on its way leaves the table as it was, and the next one finishes."""

from __future__ import annotations

import shutil

import pytest

from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.observe.steps import Step
from lakehand.storage import open_store
from support.crash import kill_at, run_and_kill
from support.delta_tables import RECIPES, without_commits_before


def checkpoint(path: str) -> None:
    write_checkpoint(open_store(path))


@pytest.fixture(scope="module")
def tables(oracle, tmp_path_factory):
    """Tables of delta-spark by recipe, each with its rows; made once, copied by every test."""
    root = tmp_path_factory.mktemp("tables")
    made = {}
    for name in ("deletion_vectors", "v2_checkpoint"):
        RECIPES[name].provide(oracle, root / name)
        made[name] = (root / name, oracle.rows(root / name))
    return made


def assert_killing_does_no_harm(oracle, tables, recipe, tmp_path, step):
    source, expected = tables[recipe]
    table = shutil.copytree(source, tmp_path / "t")

    run_and_kill(step, checkpoint, str(table))

    assert oracle.rows(table) == expected
    receipt = write_checkpoint(open_store(table))
    assert receipt.is_pointed_to
    copy = without_commits_before(receipt.version, table, tmp_path / "finished")
    assert oracle.rows(copy) == expected


@kill_at(Step.CHECKPOINT_WRITTEN, Step.CHECKPOINT_POINTED)
@pytest.mark.one_in(2)
def test_a_classic_checkpoint_that_is_killed_does_no_harm(oracle, tables, tmp_path, step):
    assert_killing_does_no_harm(oracle, tables, "deletion_vectors", tmp_path, step)


@kill_at(Step.CHECKPOINT_SIDECARS, Step.CHECKPOINT_WRITTEN, Step.CHECKPOINT_POINTED)
def test_a_v2_checkpoint_that_is_killed_does_no_harm(oracle, tables, tmp_path, step):
    assert_killing_does_no_harm(oracle, tables, "v2_checkpoint", tmp_path, step)
