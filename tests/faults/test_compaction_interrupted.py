"""Ctrl-C, a full disk and a store that fails: the table is as it was, or one version further."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehand.errors import LakehandError
from lakehand.formats.delta.table import DeltaTable
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.compactions import (
    compact_inline,
    compact_with_tasks,
    open_table,
    rewrites_in_turn,
    tasks_inline,
)
from support.rows import lakehand_rows
from support.small_disk import grow, small_disk, write_noise
from support.small_tables import make_table, read_sorted
from support.unharmed import (
    assert_clean,
    assert_unharmed,
    files_in_ledgers,
    live_files,
    staged_files,
)

_SECONDS = 200


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture
def rows(place):
    return read_sorted(place)


# Ctrl-C


def make_many_groups(place, groups=60):
    """Make a table that takes seconds to compact: every row's partition is a group."""
    ids = pa.array(range(groups), pa.int64())
    for start in range(4):
        data = pa.table({"part": ids, "id": pa.compute.add(ids, start * groups)})
        write_deltalake(str(place), data, mode="append", partition_by=["part"])


def wait_for_first_task(place):
    deadline = time.monotonic() + _SECONDS
    while not list(place.glob("_lakehand/runs/*/stems/*.json")):
        assert time.monotonic() < deadline, "no task has begun"
        time.sleep(0.01)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_leaves_the_table_as_it_was(tmp_path, sent):
    make_many_groups(tmp_path / "t")
    before = read_sorted(tmp_path / "t")
    command = [sys.executable, "-m", "lakehand", "compact", str(tmp_path / "t")]
    process = subprocess.Popen(
        [*command, "--engine", "local"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_first_task(tmp_path / "t")

    process.send_signal(sent)
    output, errors = process.communicate(timeout=_SECONDS)

    assert (process.returncode, output) == (128 + sent, "")
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert open_table(str(tmp_path / "t")).snapshot().version == 3
    assert_clean(tmp_path / "t")
    assert_unharmed(tmp_path / "t", before)


# A full disk


def test_a_full_disk_stops_a_compaction_and_room_ends_the_job(tmp_path):
    with small_disk(tmp_path / "disk", 880) as disk:
        place = disk / "t"
        write_noise(place)
        rows = read_sorted(place)

        with pytest.raises(LakehandError) as error:
            compact_with_tasks(place, lambda task: task)

        assert error.value.code == "STORE_FULL"
        assert live_files(place) == {path.name for path in place.glob("*.parquet")}
        assert lakehand_rows(place).sort_by("id").equals(rows)
        grow(disk, 4_000)
        assert compact_inline(place, "0s").files_after == 1
        assert_clean(place)
        assert lakehand_rows(place).sort_by("id").equals(rows)


# A store that fails


class FailingTable(DeltaTable):
    """A table on a store that fails as it is told."""

    def __init__(self, place, *faults):
        super().__init__(FaultStore(open_store(place), faults))


KINDS = [FaultKind.FAIL_BEFORE, FaultKind.LOST_ANSWER]
WRITES = {
    "run": ("put_if_absent", "_lakehand/runs/*/run.json"),
    "stem": ("put", "*/stems/*"),
    "group": ("put", "*/groups/*"),
    "result": ("put_if_absent", "*/results/*"),
    "fate": ("put_if_absent", "*/fates/*"),
    "version": ("put_if_absent", "_delta_log/*.json"),
    "settled": ("put", "*/settled/*"),
    "file": ("close_writer", "*.parquet"),
    "delete": ("delete", "*"),
}


@rewrites_in_turn
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", WRITES)
def test_a_write_that_fails_or_is_not_answered_harms_nothing(place, rows, target, kind, rewrite):
    operation, key = WRITES[target]
    fault = Fault(kind=kind, operation=operation, key=key)

    outcome = try_to(rewrite, FailingTable(place, fault))

    assert fault.hits == 1
    assert outcome is None or isinstance(outcome, LakehandError)
    assert_unharmed(place, rows)
    rewrite(place, "0s")
    assert len(live_files(place)) == 2
    assert staged_files(place) <= files_in_ledgers(place)
    assert_unharmed(place, rows)


LISTINGS = {"ledger": "_lakehand/runs/*", "runs": "_lakehand/runs*", "log": "_delta*"}


@rewrites_in_turn
@pytest.mark.parametrize("target", LISTINGS)
def test_a_listing_that_breaks_off_harms_nothing(place, rows, target, rewrite):
    fault = Fault(
        kind=FaultKind.PARTIAL_LIST, operation="list", key=LISTINGS[target], times=None, objects=1
    )

    try_to(rewrite, FailingTable(place, fault))

    assert fault.hits
    assert_unharmed(place, rows)
    rewrite(place, "0s")
    assert len(live_files(place)) == 2
    assert staged_files(place) <= files_in_ledgers(place)
    assert_unharmed(place, rows)


def try_to(rewrite, table):
    """Return the error that ended the rewrite; None if there was none."""
    with tasks_inline():
        try:
            rewrite.on(table, takeover_after="0s")
        except LakehandError as error:
            return error
    return None
