"""`maintain` on many tables: each in its own process, and one broken table stops no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import deltalake
import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.errors import ConfigError, NotATableError, ValidationError
from lakehand.service import many_tables
from lakehand.service.job_process import ProcessEndedError
from lakehand.service.many_tables import TableResult, TablesReport, find_tables, maintain_tables

#: Tables of tests are written to a moment ago, and have few files.
EAGER = {"quiet_period": "0s", "min_files": 2, "automatic_min_files": 2, "engine": "local"}
OPTIONS = ["--quiet-period", "0s", "--min-files", "2", "--engine", "local"]


def write(path, *, files=3):
    for number in range(files):
        deltalake.write_deltalake(str(path), pa.table({"id": [number]}), mode="append")


@pytest.fixture
def lake(tmp_path):
    for name in ("sales/orders", "sales/users", "broken"):
        write(tmp_path / "lake" / name)
    (tmp_path / "lake/broken/_delta_log" / f"{2:020}.json").write_bytes(b"nonsense")
    return tmp_path / "lake"


def files_of(path):
    return lakehand.open_table(path).snapshot().file_count


def test_a_broken_table_does_not_stop_the_others(lake):
    events = []
    report = maintain_tables([lake], jobs=2, on_event=events.append, **EAGER)
    outcomes = {one.table.rsplit("/", 1)[-1]: one.outcome for one in report.tables}
    assert outcomes == {"orders": "committed", "users": "committed", "broken": "failed"}
    assert (report.outcome, report.exit_code) == ("committed", 1)
    assert report.failed[0].error["code"] == "CORRUPT_LOG"
    orders = report.tables[1]
    assert (orders.files_before, orders.files_after, files_of(lake / "sales/orders")) == (3, 1, 1)
    assert next(event.kind for event in events if event.table == orders.table) == "started"
    assert json.loads(json.dumps(report.to_json()))["tables"][1]["report"]["steps"]
    assert lakehand.open_table(lake / "sales/users").to_arrow().num_rows == 3


def test_a_dry_run_of_the_command_changes_nothing(lake, capsys):
    assert run(["maintain", str(lake / "sales/*"), "--dry-run", "--jobs", "2", *OPTIONS]) == 0
    shown = capsys.readouterr()
    assert "2 tables, 2 due, nothing was written" in shown.out
    assert "3 → 1" in shown.out
    assert shown.err.count("due: ") == 2
    assert files_of(lake / "sales/orders") == 3


def test_tables_are_found_by_path_directory_and_pattern(lake):
    def urls(*named, config=None):
        options = {"skip": [], "dry_run": False}
        found = find_tables(named, config=config, options=options, settings={})
        return [spec.url.rsplit("/", 1)[-1] for spec in found.specs]

    assert urls(lake) == ["broken", "orders", "users"]
    assert urls(f"{lake}/sales/*", lake / "sales/orders") == ["orders", "users"]
    (lake / "sales/orders").rename(lake / "odd[1]")  # delta-rs cannot write there
    assert urls(lake / "odd[1]", lake / "sales/users") == ["odd%5B1%5D", "users"]
    with pytest.raises(NotATableError, match="nor below it"):
        urls(lake / "nothing")
    with pytest.raises(ValidationError, match="no table is named"):
        urls()


def test_the_policies_of_a_file_apply(lake, tmp_path):
    file = tmp_path / "lakehand.toml"
    file.write_text(
        f'[[source]]\nname = "lake"\ninclude = ["{lake}"]\n'
        f'[policy.sales]\nmatch = ["{lake}/sales/**"]\nsteps = ["compact"]\nmin_files = 2\n'
        '[policy.off]\nmatch = ["broken"]\nenabled = false\n'
    )
    options = {"skip": ["compact"], "dry_run": True}
    found = find_tables([], config=file, options=options, settings={"cluster_by": ("a", "b")})
    spec = found.specs[0]
    assert [one.url.rsplit("/", 1)[-1] for one in found.specs] == ["orders", "users"]
    assert spec.policy_settings == {"min_files": 2}
    assert spec.settings == {"cluster_by": ["a", "b"]}
    assert spec.options["skip"] == ["checkpoint", "clean_logs", "cluster", "compact", "vacuum"]
    with pytest.raises(ConfigError):
        maintain_tables(config=tmp_path / "absent.toml")


def test_a_directory_of_tables_is_maintained_and_one_table_as_before(lake, capsys):
    assert run(["maintain", str(lake / "sales/orders"), "--json", "--dry-run", *OPTIONS]) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0]["step"] == "compact"
    assert run(["maintain", str(lake / "nothing"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["hint"].startswith("the directory is empty")
    assert run(["maintain"]) == 2


class _Crashing:
    """A process that ends before its table, without a word."""

    jobs = 0

    def begin(self, spec):
        self.jobs += 1

    def answer(self, timeout):
        raise ProcessEndedError("was killed by SIGKILL")

    def kill(self):
        pass

    close = kill


def test_a_process_that_dies_is_the_failure_of_its_table(lake, monkeypatch):
    monkeypatch.setattr(many_tables, "JobProcess", _Crashing)
    report = maintain_tables([lake / "sales"], jobs=1)
    assert [one.outcome for one in report.tables] == ["failed", "failed"]
    assert "SIGKILL" in report.tables[0].error["message"]
    assert report.outcome == "failed"


class _Slow(_Crashing):
    """A process that works until it is told to stop early."""

    def __init__(self):
        self.is_told = False

    def wish(self, wish):
        self.is_told = wish == "wind_down"

    def answer(self, timeout):
        time.sleep(0.01)
        if not self.is_told:
            return {"progress": {"phase": "rewrite", "done": 1, "total": 2}}
        counted = {"files_before": 3, "files_after": 2}
        step = {"step": "compact", "outcome": "committed", "reason": "", "report": counted}
        ended = {"outcome": "committed", "stopped_early": True, "errors": [], "dry_run": False}
        return {"report": {**ended, "steps": [step]}}


def test_an_interrupt_winds_down_and_starts_no_further_table(lake, monkeypatch):
    monkeypatch.setattr(many_tables, "JobProcess", _Slow)
    results = []

    def interrupt(event):
        if event.kind == "progress" and not results:
            results.append(None)
            raise KeyboardInterrupt
        if event.result:
            results.append(event.result)

    with pytest.raises(KeyboardInterrupt):
        maintain_tables([lake], jobs=1, on_event=interrupt)
    assert [one.outcome for one in results[1:]] == ["stopped_early"]


def test_an_error_of_the_caller_stops_the_tables(lake, monkeypatch):
    monkeypatch.setattr(many_tables, "JobProcess", _Slow)

    def fail(_event):
        raise RuntimeError("of the caller")

    with pytest.raises(RuntimeError, match="of the caller"):
        maintain_tables([lake], jobs=2, on_event=fail)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("maintain")]


@pytest.fixture
def start():
    """Start the command in a process, which ends with the test."""
    with contextlib.ExitStack() as started:

        def run(lake, program="import lakehand.cli.main as m; m.main()"):
            arguments = ["maintain", str(lake), "--json", "--jobs", "1", *OPTIONS]
            process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield run


#: As the command, with processes that never end by themselves.
ENDLESS = """
import time
from lakehand.service import many_tables
class Endless:
    jobs = 0
    def begin(self, spec): print("begun", file=__import__("sys").stderr, flush=True)
    def wish(self, wish): print(wish, file=__import__("sys").stderr, flush=True)
    def answer(self, timeout): time.sleep(0.05)
    def kill(self): pass
    close = kill
many_tables.JobProcess = Endless
import lakehand.cli.main as m; m.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_winds_down_and_a_second_one_stops_at_once(lake, start, number):
    process = start(lake, ENDLESS)
    assert process.stderr.readline() == "begun\n"
    os.kill(process.pid, number)
    assert process.stderr.readline() == "wind_down\n"
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    tables = json.loads(out)["tables"]
    assert [one["outcome"] for one in tables] == ["failed", "not_run", "not_run"]
    assert tables[0]["error"]["code"] == "INTERRUPTED"


def test_only_the_core_is_needed(lake, start):
    program = (
        "import sys\n"
        "for name in ('sqlalchemy', 'cronsim'): sys.modules[name] = None\n"
        "import lakehand.cli.main as m; m.main()\n"
    )
    process = start(lake / "sales", program)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err.count("done: ")) == (0, 2)
    assert [one["outcome"] for one in json.loads(out)["tables"]] == ["committed"] * 2


def test_the_process_of_a_job_loads_neither_sqlalchemy_nor_cronsim():
    program = "import sys, lakehand.service.job_main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"sqlalchemy", "cronsim"} & set(loaded) == set()


def result(outcome, code=None):
    error = None if code is None else {"code": code, "message": "m"}
    return TableResult(table="t", outcome=outcome, error=error)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), (["CONFLICT"], 3), (["CONFLICT", "CONFLICT"], 3), (["CONFLICT", "PROOF_FAILED"], 1)],
)
def test_the_exit_code_is_that_of_the_failures_if_they_agree(codes, expected):
    tables = (result("committed"), *(result("failed", code) for code in codes))
    assert TablesReport(outcome="committed", tables=tables, duration_ms=1).exit_code == expected
