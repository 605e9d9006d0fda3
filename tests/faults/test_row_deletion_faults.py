"""Deduplications that are killed or starved: the table is as it was or as it should be."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehand.errors import LakehandError
from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.steps import Step, listen
from lakehand.rows import row_operation
from lakehand.rows.deduplicate import DuplicateRequest, deduplicate
from lakehand.runs import list_runs, sweep
from lakehand.settings import Settings
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.compactions import InlineRunner, open_table
from support.crash import kill_at, run_and_kill
from support.deduplications import PROPERTIES, append, contents, deduplicate_inline, kept, rows
from support.small_disk import grow, small_disk, write_noise
from support.small_tables import read_sorted
from support.unharmed import assert_clean, files_in_ledgers

BATCHES = ([(1, 0, 0), (2, 0, 1)], [(1, 0, 2), (3, 0, 3)], [(2, 0, 4), (1, 0, 5)])
EVERY = sorted(row for batch in BATCHES for row in batch)
BEFORE = (
    Step.RUN_STARTED,
    Step.TASK_RESERVED,
    Step.TASK_WRITTEN,
    Step.TASK_PROVED,
    Step.RUN_COMMITTING,
    Step.COMMIT_PREPARED,
)
AFTER = (
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
    Step.RUN_COMMITTED,
    Step.RUN_SETTLED,
    Step.RUN_CLOSED,
    Step.RUN_CLEANED,
)


def make(path, kind):
    properties = {**PROPERTIES[kind], "delta.enableChangeDataFeed": "true"}
    for batch in BATCHES:
        append(path, rows(*batch), configuration=properties)
    return path


def by_first(path):
    deduplicate_inline(path, key=["id"])


def unaccounted(path):
    """Return files of runs that neither the table nor a ledger names."""
    found = {file.relative_to(path).as_posix() for file in path.rglob("*lakehand-*/*")}
    found |= {file.relative_to(path).as_posix() for file in path.rglob("*lakehand-*.parquet")}
    table = open_table(str(path))
    vectors = table.snapshot().files["native"].combine_chunks().field("deletion_vector")
    prefixes = {name[:-20] for name in vectors.field("path_or_inline").to_pylist() if name}
    live = set(table.snapshot().files["path"].to_pylist()) | files_in_ledgers(path)
    return {
        name
        for name in found - live
        if not name.startswith("_lakehand/") and name.split("/")[0] not in prefixes
    }


@kill_at(*BEFORE, *AFTER)
def test_a_killed_deduplication_leaves_old_or_new_and_the_next_one_ends_it(tmp_path, step):
    assert_ended_by_the_next(make(tmp_path / "t", "vectors"), step)


@kill_at(Step.TASK_WRITTEN, Step.COMMIT_PREPARED, Step.RUN_COMMITTED)
def test_so_does_one_that_writes_files_and_change_files_anew(tmp_path, step):
    assert_ended_by_the_next(make(tmp_path / "t", "copies"), step)


def assert_ended_by_the_next(path, step):
    run_and_kill(step, by_first, str(path))

    left = kept(BATCHES, keep="first")
    assert contents(path) == (left if step in AFTER else EVERY)
    deduplicate_inline(path, key=["id"], takeover_after="0s")
    assert contents(path) == left
    assert unaccounted(path) - committed_changes(path) == set()


def committed_changes(path):
    """Return change files, which no snapshot names."""
    return {f"_change_data/{file.name}" for file in (path / "_change_data").glob("*.parquet")}


class Speculating(InlineRunner):
    """Runs tasks as a Spark does whose tasks may be at work twice."""

    def run(self, *args, run=None, **options):
        outcomes = super().run(*args, **options)
        if run is not None:
            run.expect_stragglers()
        return outcomes


@pytest.mark.parametrize("kind", PROPERTIES)
def test_a_sweep_after_tasks_that_were_given_up_leaves_what_was_committed(
    tmp_path, kind, monkeypatch
):
    path = make(tmp_path / "t", kind)
    monkeypatch.setattr(row_operation, "_runner", lambda *_: Speculating())
    deduplicate_inline(path, key=["id"])

    report = sweep(open_table(str(path)), takeover_after=timedelta(0))

    assert (report.files_deleted, report.kept) == ([], {})
    assert contents(path) == kept(BATCHES, keep="first")
    assert list_runs(open_table(str(path)).store) == []


# Damage


@pytest.fixture(params=PROPERTIES)
def path(request, tmp_path):
    return make(tmp_path / "t", request.param)


@pytest.fixture(autouse=True)
def stop_listening():
    yield
    listen(None)


def assert_as_it_was_and_then_done(path):
    """Nothing was committed or is left, and the next call takes the rows out."""
    assert open_table(str(path)).snapshot().version == len(BATCHES) - 1
    assert contents(path) == EVERY
    assert (unaccounted(path), list_runs(open_table(str(path)).store)) == (set(), [])
    by_first(path)
    assert contents(path) == kept(BATCHES, keep="first")


@pytest.mark.parametrize("tasks", [0, 1, 2, 4], ids=["hash", "compare", "values", "rewrite"])
def test_an_input_deleted_before_its_task_stops_it(path, tasks):
    """A file is read to be hashed, for its values, and to lose rows; tasks are told one by one."""
    _, lost, _ = sorted(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    told = 0

    def delete(progress):
        nonlocal told
        told += progress.unit == "tasks"
        if told == tasks:
            lost.rename(path / "lost")

    if not tasks:
        lost.rename(path / "lost")
    with pytest.raises(LakehandError) as error:
        deduplicate_inline(path, key=["id"], on_progress=delete if tasks else None)

    assert (error.value.code, lost.name in str(error.value)) == ("FILE_NOT_FOUND", True)
    (path / "lost").rename(lost)
    assert_as_it_was_and_then_done(path)


def flip_a_bit(file):
    """Flip a bit of the first value, or of a vector."""
    data = bytearray(file.read_bytes())
    data[36 if file.suffix == ".parquet" else len(data) // 3] ^= 1
    file.write_bytes(data)


def truncate(file):
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, Path.unlink])
def test_an_output_damaged_before_its_proof_is_never_committed(path, damage):
    def act(step):
        if step is Step.TASK_WRITTEN:
            for output in written(path):
                damage(output)

    listen(act)
    with pytest.raises(LakehandError) as error:
        by_first(path)
    listen(None)

    assert error.value.code in {"PROOF_FAILED", "CORRUPT_FILE", "FILE_NOT_FOUND"}
    assert_as_it_was_and_then_done(path)


def written(path):
    """Return the files that take rows out, or that hide them, and not those of the change feed."""
    return [*path.glob("lakehand-*.parquet"), *path.glob("lakehand-*/*.bin")]


def test_a_full_disk_stops_it_and_room_ends_the_job(tmp_path):
    with small_disk(tmp_path / "disk", 620) as disk:
        write_noise(disk / "t")
        write_deltalake(disk / "t", pa.table({"id": [5], "x": [0.5]}), mode="append")
        rows_before = read_sorted(disk / "t").num_rows
        with pytest.raises(LakehandError) as error:
            deduplicate_inline(disk / "t", key=["id"], keep="last")

        assert error.value.code == "STORE_FULL"
        assert read_sorted(disk / "t").num_rows == rows_before
        grow(disk, 4_000)
        report = deduplicate_inline(disk / "t", key=["id"], keep="last", takeover_after="0s")

        assert report.duplicates_removed == 1
        assert_clean(disk / "t")
        assert read_sorted(disk / "t").num_rows == rows_before - 1


WRITES = {
    "run": ("put_if_absent", "_lakehand/runs/*/run.json"),
    "stem": ("put", "*/stems/*"),
    "fate": ("put_if_absent", "*/fates/*"),
    "version": ("put_if_absent", "_delta_log/*.json"),
    "settled": ("put", "*/settled/*"),
    "delete": ("delete", "*"),
}


@pytest.mark.parametrize(
    "path", ["vectors", pytest.param("copies", marks=pytest.mark.soak)], indirect=True
)
@pytest.mark.parametrize("failure", [FaultKind.FAIL_BEFORE, FaultKind.LOST_ANSWER])
@pytest.mark.parametrize("target", WRITES)
def test_a_write_that_fails_or_is_not_answered_harms_nothing(path, target, failure):
    operation, key = WRITES[target]
    fault = Fault(kind=failure, operation=operation, key=key)
    table = DeltaTable(FaultStore(open_store(path), [fault]))
    request = DuplicateRequest(key=["id"])
    settings = Settings({"engine": "local", "takeover_after": "0s"}, environment={})
    with suppress(LakehandError):
        deduplicate(table, settings=settings, request=request)

    assert fault.hits == 1
    assert contents(path) in (EVERY, kept(BATCHES, keep="first"))
    deduplicate_inline(path, key=["id"], takeover_after="0s")
    assert contents(path) == kept(BATCHES, keep="first")
    assert unaccounted(path) - committed_changes(path) == set()
