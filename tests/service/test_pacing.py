"""The byte rate of a job: it holds in the middle of a file, for all of its processes together."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand.engine.local import LocalRunner
from lakehand.runs.control import RunControl
from lakehand.service import job_main
from lakehand.service.job_main import JobSpec
from lakehand.storage import open_store, pacing
from lakehand.storage.pacing import Pace, paced

MIB = 2**20


class FakeTime:
    """A clock that sleeping moves."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(pacing, "time", fake)
    return fake


def test_bytes_are_allowed_at_the_rate_and_what_was_not_used_is_lost(tmp_path, clock):
    pace = Pace(bytes_per_second=100.0, path=str(tmp_path / "bucket"))
    pace.take(100)
    assert clock.now == pytest.approx(1000.9), "a tenth of a second is there at the start"
    pace.take(50)
    assert clock.now == pytest.approx(1001.4)
    clock.now += 3600
    pace.take(100)
    assert clock.now == pytest.approx(1001.4 + 3600 + 0.9)


def test_no_second_of_a_file_has_more_than_the_rate(tmp_path, clock):
    block, written = bytes(64 * 1024), []
    with (
        paced(Pace(bytes_per_second=MIB, path=str(tmp_path / "bucket"))),
        open_store(str(tmp_path)).open_writer("file") as writer,
    ):
        for _ in range(64):
            writer.write(block)
            written.append(clock.now)
    assert written[-1] == pytest.approx(1000 + 4 - 0.1)
    for begin in written:
        within = sum(begin <= at < begin + 1 for at in written) * len(block)
        assert within <= 1.1 * MIB + len(block)


def test_a_process_outside_of_a_job_is_not_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(Pace, "take", lambda *_: pytest.fail("limited"))
    with paced(Pace(bytes_per_second=1.0, path=str(tmp_path / "bucket"))):
        pass
    with open_store(str(tmp_path)).open_writer("file") as writer:
        writer.write(b"rows")


def test_processes_share_one_rate(tmp_path):
    program = (
        "import sys; from lakehand.storage.pacing import Pace\n"
        "pace = Pace(bytes_per_second=1000.0, path=sys.argv[1])\n"
        "for _ in range(10): pace.take(40)\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "bucket")]
    began = time.monotonic()
    processes = [subprocess.Popen(arguments) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert time.monotonic() - began >= 0.8 - 0.1


def pace_of(_payload):
    found = pacing.current_pace()
    return {"rate": found.bytes_per_second, "path": found.path}


def test_tasks_in_other_processes_have_the_rate_of_their_driver(tmp_path):
    pace = Pace(bytes_per_second=5.0, path=str(tmp_path / "bucket"))
    with paced(pace), LocalRunner(parallelism=1) as runner:
        (outcome,) = runner.run(pace_of, [{}])
    assert outcome.result == {"rate": 5.0, "path": pace.path}


def test_a_compaction_takes_its_bytes_from_the_bucket_of_its_job(tmp_path, monkeypatch):
    rows = pa.table({"id": np.random.default_rng(1).integers(0, 2**62, 40_000)})
    table = lakehand.create_table(tmp_path / "table", rows.schema, engine="local")
    for _ in range(4):
        table.append(rows)
    seen = []
    call = job_main._call

    def observed(*arguments):
        report = call(*arguments)
        bucket = Path(pacing.current_pace().path)
        seen.append((bucket, len(bucket.read_bytes())))
        return report

    monkeypatch.setattr(job_main, "_call", observed)
    options = {"automatic": False}
    spec = JobSpec(url=str(tmp_path / "table"), verb="compact", options=options, rate=8.0 * MIB)
    began = time.monotonic()
    report = job_main.run_job(spec, RunControl(), lambda _progress: None).to_json()
    assert time.monotonic() - began >= report["bytes_after"] / (8 * MIB) - 0.1
    ((bucket, size),) = seen
    assert size == 8, "the process that wrote the file has taken its bytes"
    assert not bucket.exists()
    assert pacing.current_pace() is None
