"""A secret of the caller is in the memory of the processes that need it, and nowhere else."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import stat
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import lakehand
from lakehand.engine.local_worker import end_idle_workers
from support.s3_server import SECRET_KEY

pytestmark = pytest.mark.server
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


class Watch(threading.Thread):
    """Looks at the children of this process and at its temporary files, until it is stopped."""

    def __init__(self, scratch, others):
        super().__init__(daemon=True)
        self._scratch, self._others = scratch, others
        self._is_over = threading.Event()
        self.processes, self.files, self.modes = {}, {}, {}

    def run(self):
        while not self._is_over.wait(0.002):
            for child in psutil.Process().children(recursive=True):
                if child.pid not in self._others and child.pid not in self.processes:
                    self._look_at(child)
            for parent, directories, files in os.walk(self._scratch):
                for name in (*directories, *files):
                    self._look_into(Path(parent, name))

    def _look_at(self, child):
        with suppress(psutil.Error):  # ended by now
            command, environment = " ".join(child.cmdline()), child.environ()
            if "lakehand" in command:  # not a fork that is about to become one
                self.processes[child.pid] = (command, environment)

    def _look_into(self, path):
        with suppress(OSError):  # deleted by now
            self.modes[path.relative_to(self._scratch)] = path.lstat().st_mode
            if path.is_file():
                self.files[path] = path.read_bytes()

    def stop(self):
        self._is_over.set()
        self.join()


@contextmanager
def watching(scratch, server):
    watch = Watch(scratch, {server.pid})
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


@pytest.fixture
def scratch(tmp_path, monkeypatch, usual_umask):
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    end_idle_workers()
    yield place
    end_idle_workers()


def rows(first, count=5000):
    names = [f"name of {number * 7919 % 10007}" for number in range(count)]
    return pa.table({"id": range(first, first + count), "name": names})


def run_verbs(table):
    """Run what starts processes and writes scratch files; return the reports."""
    return [
        table.compact(engine="local"),
        table.cluster(by=["name"], engine="local"),
        table.upsert(rows(100), key=["id"], engine="local"),
        table.deduplicate(key=["id"], engine="local"),
        table.verify(engine="local"),
        table.vacuum(),
    ]


@pytest.fixture
def table(s3_server):
    created = lakehand.create_table(
        s3_server.new_uri(), SCHEMA, storage_options=dict(s3_server.options)
    )
    for first in (0, 5000, 10000):
        created.append(rows(first))
    return created


def test_a_secret_of_a_call_is_in_no_process_list_environment_scratch_file_log_or_table(
    table, s3_server, scratch, caplog, capfd, tmp_path
):
    caplog.set_level(logging.DEBUG)
    with watching(scratch, s3_server) as watch:
        reports = run_verbs(table)
    with (tmp_path / "dump").open("w+") as dump:
        faulthandler.dump_traceback(dump)
        dump.seek(0)
        crash = dump.read()

    assert watch.processes, "no process was seen"
    assert not [seen for seen in watch.processes.values() if SECRET_KEY in str(seen)]
    given = {*os.environ, "PYTHONPATH"}
    assert not [seen for _, seen in watch.processes.values() if not given.issuperset(seen)]
    assert watch.files, "no scratch file was seen"
    assert not [path for path, found in watch.files.items() if SECRET_KEY.encode() in found]
    stored = [path for path in s3_server.directory.rglob("*") if path.is_file()]
    assert [path for path in stored if path.suffix == ".json"]
    assert not [path for path in stored if SECRET_KEY.encode() in path.read_bytes()]
    documents = json.dumps([report.to_json() for report in reports])
    shown = "".join(
        [*capfd.readouterr(), caplog.text, documents, repr(reports), repr(table), crash]
    )
    assert SECRET_KEY not in shown


def test_no_other_user_can_enter_what_verbs_create_in_the_temporary_directory(
    table, s3_server, scratch
):
    with watching(scratch, s3_server) as watch:
        run_verbs(table)
    at_the_top = {path: mode for path, mode in watch.modes.items() if len(path.parts) == 1}

    assert at_the_top
    assert not {str(path) for path, mode in at_the_top.items() if stat.S_IMODE(mode) & 0o077}
