"""Runs that die or are stopped while they compact a table in S3."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

from lakehand.errors import CorruptFileError, LakehandError
from lakehand.observe.steps import Step
from lakehand.runs import Run, list_runs
from lakehand.storage.remote import StreamingWriter
from support.compactions import (
    CLUSTER,
    CLUSTER_BY_MANY_TASKS,
    COMPACT,
    EVERY_REWRITE,
    compact_inline,
    open_table,
)
from support.crash import REWRITE_STEPS, run_and_kill, run_to_end
from support.pausing import PausedProcess
from support.small_disk import grow, small_disk, write_noise
from support.small_tables import make_table, read_sorted


@pytest.fixture
def options(s3_server):
    return s3_server.options


@pytest.fixture
def delta_rs_options(options):
    names = {
        "endpoint": "AWS_ENDPOINT_URL",
        "region": "AWS_REGION",
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "allow_http": "AWS_ALLOW_HTTP",
    }
    return {names[key]: value for key, value in options.items()} | {
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true"
    }


@pytest.fixture
def uri(s3_server, delta_rs_options):
    uri = s3_server.new_uri()
    make_table(uri, commits=4, storage_options=delta_rs_options)
    return uri


def staged_files(uri, options):
    table = open_table(uri, options)
    found = {info.key for info in table.store.list() if "/lakehand-" in info.key}
    live = table.snapshot().files["path"].to_pylist()
    return {key for key in found if not key.startswith("_lakehand/")} - set(live)


def files_in_ledgers(uri, options):
    store = open_table(uri, options).store
    fates = (fate for run_id in list_runs(store) for fate in Run(store=store, id=run_id).fates())
    return {path for fate in fates for path in fate.outputs}


def read(uri, delta_rs_options):
    return read_sorted(uri, storage_options=delta_rs_options)


def assert_job_done(uri, options, delta_rs_options, rows):
    assert DeltaRsTable(uri, storage_options=delta_rs_options).version() >= 4
    assert open_table(uri, options).snapshot().file_count == 2
    assert staged_files(uri, options) <= files_in_ledgers(uri, options)
    assert read(uri, delta_rs_options).equals(rows)


#: What S3 does otherwise than a disk; all other cases take minutes.
SHORT = [
    (COMPACT, Step.TASK_RECORDED),
    (COMPACT, Step.RUN_COMMITTING),
    (COMPACT, Step.COMMIT_PUT),
    (CLUSTER, Step.COMMIT_PUT),
    (CLUSTER_BY_MANY_TASKS, Step.TASK_WRITTEN),
]
REWRITES = (COMPACT, CLUSTER, CLUSTER_BY_MANY_TASKS)
EVERY_KILL = [
    pytest.param(
        rewrite,
        step,
        marks=() if (rewrite, step) in SHORT else pytest.mark.soak,
        id=f"{rewrite.name}-{step.value}",
    )
    for rewrite in REWRITES
    for step in REWRITE_STEPS
]


@pytest.mark.server
@pytest.mark.parametrize(("rewrite", "step"), EVERY_KILL)
def test_a_run_killed_on_s3_is_ended_by_the_next_call(
    uri, options, delta_rs_options, rewrite, step
):
    rows = read(uri, delta_rs_options)
    run_and_kill(step, rewrite, uri, "2m", options)
    assert read(uri, delta_rs_options).equals(rows)

    report = rewrite(uri, "0s", options)

    assert report.groups.adopted == (1 if step is Step.TASK_RECORDED else 0)
    assert_job_done(uri, options, delta_rs_options, rows)


def die_at_second_part(rewrite, uri, options):
    """Rewrite until the first part of an upload is sent and the second one is about to be."""
    send = StreamingWriter._send

    def send_and_die(writer, part):
        if writer._upload is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        send(writer, part)

    StreamingWriter._send = send_and_die
    rewrite(uri, "2m", options)


@pytest.mark.server
@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(rewrite, marks=() if rewrite is CLUSTER else pytest.mark.soak, id=rewrite.name)
        for rewrite in REWRITES
    ],
)
def test_a_run_killed_in_the_middle_of_an_upload_is_ended_by_the_next_call(
    s3_server, options, delta_rs_options, rewrite
):
    uri = s3_server.new_uri()
    write_parts(uri, delta_rs_options)
    rows = read(uri, delta_rs_options)
    with pytest.raises(AssertionError, match="exit -9"):
        run_to_end(die_at_second_part, rewrite, uri, options)

    report = rewrite(uri, "0s", options)

    assert (report.groups.adopted, report.errors) == (0, ())
    assert staged_files(uri, options) == set()
    assert list_runs(open_table(uri, options).store) == []
    assert read(uri, delta_rs_options).equals(rows)


@pytest.mark.server
def test_a_run_stopped_on_s3_gives_way_to_the_run_that_took_it(uri, options, delta_rs_options):
    rows = read(uri, delta_rs_options)
    before_fate = [(Step.TASK_RECORDED, 2)]
    with PausedProcess(before_fate, compact_inline, uri, "2m", options) as sleeper:
        sleeper.wait_until_stopped()
        report = compact_inline(uri, "0s", options)

        assert sleeper.end() == "RunTakenError"

    assert (report.groups.adopted, report.read_ms) == (2, 0.0)
    assert_job_done(uri, options, delta_rs_options, rows)
    assert staged_files(uri, options) == set()


@pytest.mark.server
@EVERY_REWRITE
def test_a_run_that_is_cancelled_on_s3_leaves_no_file_and_no_part(
    s3_server, uri, options, delta_rs_options, rewrite
):
    rows, before = read(uri, delta_rs_options), parts_of_uploads(s3_server)

    def stop(event):
        if event.phase == "rewrite" and event.done == 1:
            raise LakehandError("enough")

    with pytest.raises(LakehandError, match="enough"):
        rewrite(uri, "2m", options, on_progress=stop)

    assert parts_of_uploads(s3_server) <= before
    assert staged_files(uri, options) == set()
    assert list_runs(open_table(uri, options).store) == []
    assert read(uri, delta_rs_options).equals(rows)


def write_parts(uri, delta_rs_options):
    """Write what has to be uploaded in several parts: noise of 29 MB."""
    noise = np.random.default_rng(3)
    for number in range(12):
        ids = pa.array(range(number * 50_000, (number + 1) * 50_000), pa.int64())
        data = pa.table({"id": ids, **{n: noise.random(50_000) for n in ("amount", *"vwxyz")}})
        write_deltalake(uri, data, mode="append", storage_options=delta_rs_options)


def parts_of_uploads(s3_server):
    """Return the parts of uploads that were neither completed nor aborted, of other tests, too."""
    parts = s3_server.directory / ".sgwtmp" / "multipart"
    return {path for path in parts.rglob("*") if path.is_file()}


@pytest.mark.server
def test_a_group_that_fails_after_parts_were_sent_aborts_its_upload(
    s3_server, options, delta_rs_options
):
    uri = s3_server.new_uri()
    write_parts(uri, delta_rs_options)
    place = s3_server.directory / uri.rsplit("/", 1)[1]
    newest = max(place.glob("part-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"PAR1" + b"\xff" * 4_000 + newest.read_bytes()[4_004:])
    before = parts_of_uploads(s3_server)

    with pytest.raises(CorruptFileError):
        compact_inline(uri, "2m", options)

    assert parts_of_uploads(s3_server) <= before
    assert staged_files(uri, options) == set()
    assert open_table(uri, options).snapshot().version == 11


@pytest.mark.server
def test_scratch_that_is_full_fails_the_group_and_room_ends_the_job(
    s3_server, options, delta_rs_options, tmp_path
):
    uri = s3_server.new_uri()
    write_noise(uri, storage_options=delta_rs_options)
    rows = read(uri, delta_rs_options)
    with small_disk(tmp_path / "scratch", 200) as scratch:
        with pytest.raises(LakehandError) as error:
            compact_inline(uri, "2m", options, scratch_directory=str(scratch))

        assert "scratch" in str(error.value)
        assert list(scratch.iterdir()) == []
        assert staged_files(uri, options) == set()
        grow(scratch, 4_000)
        report = compact_inline(uri, "0s", options, scratch_directory=str(scratch))

    assert report.files_after == 1
    assert read(uri, delta_rs_options).equals(rows)
