"""`lakehand serve` says what is wrong, and goes on with everything that is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.serving import EAGER, Lake

LAKEHAND = str(Path(sys.executable).with_name("lakehand"))


def serve(directory, *options):
    command = [LAKEHAND, "serve", *options]
    answer = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in answer.stderr
    return answer.returncode, answer.stderr


@pytest.fixture
def lake(tmp_path):
    made = Lake(tmp_path)
    made.configure()
    yield made
    made.kill_all()


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ([], "no tables to maintain", "lakehand service init"),
        ([".", "--roles", "worker,boss"], "'boss' is not a role", ""),
        ([".", "--roles", ","], "no role is named", ""),
        ([".", "--store", "mysql://x/y"], "SQLite and PostgreSQL are supported", ""),
        ([".", "--store", "no url"], "is not the URL of a job store", "sqlite:///"),
        ([".", "--store", "sqlite:////proc/no/such"], "cannot be created", ""),
        (["--config", "none.toml"], "there is no configuration file none.toml", "service init"),
        (
            [".", "--store", "postgresql+psycopg://u:hidden-secret@127.0.0.1:9/x"],
            "the job store postgresql+psycopg://u:***@127.0.0.1:9/x failed",
            "",
        ),
    ],
    ids=["nothing", "role", "no role", "mysql", "no url", "no place", "no file", "away"],
)
def test_a_wrong_call_ends_with_a_message(tmp_path, options, message, hint):
    code, said = serve(tmp_path, *options)
    assert code != 0
    assert message in said
    assert hint in said
    assert "hidden-secret" not in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[servce]\n", "did you mean service?"),
        ("[service\n", "is not valid TOML"),
        ("[policy.a]\nschedule = { verify = '61 * * * *' }\n", "not a cron expression"),
        ("[policy.a]\nschedule = { verfy = '0 4 * * 0' }\n", "did you mean verify?"),
        ("[storage.a]\nsecret_access_key = true\n", "cannot be True"),
    ],
    ids=["section", "toml", "cron", "verb", "type"],
)
def test_a_wrong_file_ends_with_a_message(tmp_path, text, message):
    (tmp_path / "lakehand.toml").write_text(text)
    code, said = serve(tmp_path)
    assert code != 0
    assert "lakehand.toml" in said
    assert message in said


def test_a_broken_table_and_a_missing_source_do_not_stop_the_others(lake):
    missing = '[[source]]\nname = "other"\ninclude = ["nowhere", "s3://nowhere-at-all/x"]\n'
    storage = '[storage.a]\nmatch = ["s3://**"]\nsecret_access_key = "env:NOT_SET"\n'
    lake.configure(missing + storage + EAGER)
    lake.create("good")
    broken = lake.create("broken")
    (broken / "_delta_log" / f"{2:020}.json").write_bytes(b"nonsense")
    lake.start()
    lake.wait_for(lambda: any(job.state == "failed" for job in lake.jobs()))
    lake.wait_for(lambda: lake.file_counts(["good"]) == {"good": 1})
    assert lake.end() == 0
    failed = next(job for job in lake.jobs() if job.state == "failed")
    assert failed.error["code"] == "CORRUPT_LOG"
    assert "NOT_SET, which holds a secret, is not set" in lake.read_log()
    # It is held: it is not tried again for as long as nothing has changed.
    assert len([job for job in lake.jobs() if job.table_id == failed.table_id]) == 1
