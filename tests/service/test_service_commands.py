"""The commands of the service, on a store in a file and on real tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import deltalake
import pyarrow as pa
import pytest

from lakehand.cli.main import COMMANDS, cli, run
from lakehand.service.job_states import WaitsFor
from lakehand.service.store.database import open_database
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from lakehand.service.wait_words import WAITS
from support.job_stores import claim_by

GROUPS = ("service", "tables", "jobs", "workers", "policies")
ERROR = {"code": "CONFLICT", "message": "lost to another writer", "hint": "retry"}


class Screen:
    """Runs commands in a directory with tables and a configuration, and returns what they print."""

    def __init__(self, capsys):
        self._capsys = capsys

    def __call__(self, *arguments, code=0):
        assert run([str(one) for one in arguments]) == code
        shown = self._capsys.readouterr()
        return shown.err if code else shown.out

    def json(self, *arguments, code=0):
        assert run([*(str(one) for one in arguments), "--json"]) == code
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHAND_CONFIG", raising=False)
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("LOGNAME", "ann")
    return tmp_path


@pytest.fixture
def screen(home, capsys):
    return Screen(capsys)


@pytest.fixture
def lake(home, screen):
    for name in ("orders", "users"):
        deltalake.write_deltalake(str(home / "lake" / name), pa.table({"id": [1]}))
    screen("service", "init", str(home / "lake"))
    screen("tables", "discover")
    return home / "lake"


@pytest.fixture
def queue(lake):
    database = open_database(f"sqlite:///{lake.parent}/lakehand.db")
    WorkerRegistry(database).start(
        Worker(id="w1", host="h", pid=1, version="0", engines=["local"], slots=2, memory_bytes=9)
    )
    yield JobQueue(database)
    database.close()


def fail(queue, error=ERROR):
    job = queue.claim(claim_by("w1"))
    queue.finish(job.id, job.fence, AttemptEnd(outcome="failed", error=error), state="failed")


def test_without_a_configuration_the_commands_say_what_to_do(screen, home):
    assert "lakehand service init writes one" in screen("tables", "list", code=2)
    assert screen.json("jobs", "list", code=2)["error"]["code"] == "CONFIG_ERROR"
    screen("service", "init")
    assert "there is no job store" in screen("jobs", "list", code=1)
    assert not (home / "lakehand.db").exists()
    assert "exists already" in screen("service", "init", code=2)
    screen("service", "init", "--force")


def test_a_dry_run_of_discovery_makes_no_store(screen, home):
    deltalake.write_deltalake(str(home / "lake/t"), pa.table({"id": [1]}))
    screen("service", "init", str(home / "lake"))
    document = screen.json("tables", "discover", "--dry-run")
    assert (document["sources"][0]["new"], document["dry_run"]) == (1, True)
    assert not (home / "lakehand.db").exists()


def test_empty_states_say_what_to_do_next(screen, home):
    screen("service", "init")
    url = f"sqlite:///{home}/other.db"
    open_database(url).close()
    assert "lakehand tables add URL" in screen("tables", "list", "--store", url)
    assert "lakehand jobs submit" in screen("jobs", "list", "--store", url)
    assert "lakehand serve" in screen("workers", "list", "--store", url)
    assert "No budgets" in screen("budgets", "--store", url, "--day", "2026-01-31")
    assert "not running" in screen("service", "status", "--store", url)


def test_tables_are_listed_added_shown_and_removed_without_loss(screen, lake, home):
    shown = screen("tables", "list")
    assert shown.splitlines()[0].split() == [
        "id", "name", "state", "policy", "version", "checked", "location",
    ]  # fmt: skip
    assert str(lake / "orders") in shown
    assert "1 of 2 tables" in screen("tables", "list", "--limit", "1")
    deltalake.write_deltalake(str(home / "other"), pa.table({"id": [1]}))
    assert "added" in screen("tables", "add", home / "other", "--name", "mine")
    assert "already registered" in screen("tables", "add", home / "other")
    assert "no data was deleted" in screen("tables", "remove", "mine")
    assert deltalake.DeltaTable(str(home / "other")).to_pyarrow_table().num_rows == 1
    assert [one["name"] for one in screen.json("tables", "list")["tables"]] == ["orders", "users"]
    assert len(screen.json("tables", "list", "--gone")["tables"]) == 3
    assert "did you mean orders" in screen("tables", "show", "order", code=2)


def test_a_table_is_paused_and_has_settings_of_its_own(screen, lake):
    shown = screen("tables", "pause", "orders", "--for", "2h", "--why", "loading")
    assert "paused by ann, until" in shown
    assert ": loading" in shown
    assert "is not a duration" in screen("tables", "pause", "orders", "--for", "x", code=2)
    assert "paused" in screen("tables", "show", "orders")
    assert "resumed" in screen("tables", "resume", "orders")
    assert "min_files = 3" in screen("tables", "set", "orders", "min-files=3")
    assert "write it as SETTING=VALUE" in screen("tables", "set", "orders", "x", code=2)
    shown = screen("policies", "show", "orders")
    assert ["min_files", "3", "table"] in [line.split() for line in shown.splitlines()]
    assert "own settings: none" in screen("tables", "reset", "orders")
    document = screen.json("policies", "show", lake / "users")
    assert document["settings"]["min_files"]["source"] == "default"


def test_a_broken_configuration_is_refused_with_the_place(screen, home):
    (home / "lakehand.toml").write_text("[service]\nleese = '1m'\n")
    message = screen("policies", "check", code=2)
    assert "lakehand.toml: [service] has the unknown key 'leese'" in message
    assert "did you mean lease?" in message
    (home / "lakehand.toml").write_text("[service]\nlease = '1m'\n")
    assert "valid" in screen("policies", "check")


def test_jobs_are_submitted_shown_and_changed(screen, lake, queue):
    assert "queued, waits for its turn" in screen("jobs", "submit", "orders")
    document = screen.json("jobs", "submit", "users", "verify", "--option", "deep=true")
    assert (document["options"], document["table_name"]) == ({"deep": True}, "users")
    assert "is paused" in screen("jobs", "pause", "1")
    assert "waits for its turn" in screen("jobs", "resume", "1")
    assert "cancelled" in screen("jobs", "cancel", "2")
    assert "jobs retry 2 queues its work again" in screen("jobs", "cancel", "2", code=2)
    assert "job 3: verify users: queued" in screen("jobs", "retry", "2")
    assert [one["id"] for one in screen.json("jobs", "list")["jobs"]] == [3, 2, 1]
    assert [one["id"] for one in screen.json("jobs", "list", "--state", "queued")["jobs"]] == [3, 1]
    assert "No jobs match" in screen("jobs", "list", "--verb", "clean-logs")
    fail(queue)
    shown = screen("jobs", "show", "1")
    assert "failed: lost to another writer" in shown
    assert "asked for by hand" in shown
    assert screen.json("jobs", "show", "1")["events"][0]["kind"] == "job.queued"


def test_job_numbers_that_are_none_are_refused(screen, lake):
    assert "'x' is not the number of a job" in screen("jobs", "show", "x", code=2)
    assert "there is no job 99" in screen("jobs", "watch", "99", code=2)
    assert screen.json("jobs", "cancel", "99", code=2)["error"]["code"] == "JOB_NOT_FOUND"


def test_the_exit_code_of_watching_is_that_of_the_job(screen, lake, queue):
    screen("jobs", "submit", "orders")
    fail(queue)
    assert screen.json("jobs", "watch", "1", code=3)["state"] == "failed"
    screen("jobs", "submit", "users")
    screen("jobs", "cancel", "2")
    assert screen.json("jobs", "watch", "2", code=1)["state"] == "cancelled"
    screen("jobs", "submit", "users")
    job = queue.claim(claim_by("w1"))
    end = AttemptEnd(outcome="nothing_to_do", report={"steps": []})
    queue.finish(job.id, job.fence, end, state="succeeded")
    assert "succeeded, nothing to do" in screen("jobs", "watch", "3")


def test_ctrl_c_ends_the_watching_and_not_the_job(screen, lake, queue):
    screen("jobs", "submit", "orders")
    process = subprocess.Popen(
        [sys.executable, "-m", "lakehand", "jobs", "watch", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "job 1: queued, waits for its turn\n"
    job = queue.claim(claim_by("w1"))
    queue.beat(job.id, job.fence, lease_seconds=60, progress={
        "operation": "compact", "phase": "rewrite", "done": 1, "total": 4, "unit": "groups",
    })  # fmt: skip
    while "rewrite 1/4 groups" not in (line := process.stderr.readline()):
        assert line.startswith("job 1: running")
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "stopped watching; job 1 continues\n")
    assert queue.get(1).state == "running"
    assert queue.get(1).wish is None


def test_the_service_is_paused_resumed_and_drained(screen, lake, queue):
    assert "service: running" in screen("service", "status")
    assert "paused by ann, until it is resumed: migration" in screen(
        "service", "pause", "--why", "migration"
    )
    assert screen.json("service", "status")["pause"]["paused_why"] == "migration"
    assert "resumed" in screen("service", "resume")
    assert "was not paused" in screen("service", "resume")
    assert "1 worker asked to drain" in screen("service", "drain")
    assert "draining" in screen("workers", "list")
    assert "asked to stop" in screen("workers", "stop", "w1")
    assert screen.json("workers", "list")["workers"][0]["wish"] == "stop"
    assert "there is no worker 'x'" in screen("workers", "drain", "x", code=2)


def test_the_commands_work_on_postgresql(screen, lake, emptied_postgresql):
    store = ("--store", emptied_postgresql)
    assert ["lake", "2", "2", "0"] in map(
        str.split, screen("tables", "discover", *store).splitlines()
    )
    assert "queued" in screen("jobs", "submit", "orders", *store)
    assert "1 queued" in screen("service", "status", *store)
    assert screen.json("policies", "check", *store)["tables"] == {"default": 2}
    assert screen.json("tables", "pause", "users", *store)["paused_until"] is None
    assert "on request" in screen("jobs", "cancel", "1", *store)


def test_the_store_of_the_option_is_written_into_the_file(screen, home):
    url = f"sqlite:///{home}/other.db"
    screen("service", "init", "--store", url)
    assert url in screen("jobs", "list", code=1)


def test_a_service_without_a_file_is_found_by_its_store(screen, home):
    open_database(f"sqlite:///{home}/lakehand.db").close()
    assert "No jobs." in screen("jobs", "list")


def test_every_wait_has_words():
    from typing import get_args

    assert set(WAITS) == set(get_args(WaitsFor))


@pytest.mark.parametrize("name", [*GROUPS, "budgets"])
def test_every_command_has_its_options_and_a_help_line(name):
    import click

    command = cli.get_command(click.Context(cli), name)
    assert COMMANDS[name]

    def leaves(one):
        if not isinstance(one, click.Group):
            return [one]
        return [leaf for inner in one.commands.values() for leaf in leaves(inner)]

    for one in leaves(command):
        flags = {flag for parameter in one.params for flag in parameter.opts}
        assert {"--json", "--config", "--store"} <= flags
        assert one.help
