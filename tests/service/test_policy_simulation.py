"""What a configuration would do, against what it does."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import deltalake
import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.service.config import parse_config

NAMES = ("sales/orders", "sales/users", "web/clicks")


@pytest.fixture
def lake(tmp_path):
    for name, files in zip(NAMES, (12, 20, 3), strict=True):
        for number in range(files):
            rows = pa.table({"id": [number]})
            deltalake.write_deltalake(str(tmp_path / "lake" / name), rows, mode="append")
    return tmp_path / "lake"


@pytest.fixture
def file(tmp_path, lake):
    path = tmp_path / "lakehand.toml"
    path.write_text(f"""
[service]
store = "sqlite:///{tmp_path}/jobs.db"

[[source]]
name = "lake"
include = ["{lake}"]

[policy.default]
steps = ["compact"]
quiet_period = "0s"
""")
    return path


@pytest.fixture
def client(file):
    with lakehand.ServiceClient(file, create=True) as opened:
        opened.tables.discover()
        yield opened


def other(**sections):
    policy = {"steps": ["compact"], "quiet_period": "0s", **sections.pop("policy", {})}
    return parse_config({"policy": {"default": policy}, **sections})


def test_the_jobs_and_bytes_are_those_of_real_runs(client, lake):
    simulation = client.policies.simulate(client.config)
    assert simulation.tables == 3
    assert sorted(job.table.rsplit("/", 1)[-1] for job in simulation.jobs) == ["orders", "users"]
    for job in simulation.jobs:
        table = lakehand.open_table(job.table)
        report = table.compact(automatic=True, quiet_period="0s", engine="local")
        assert (report.bytes_removed, report.files_before - report.files_after) == (
            job.bytes,
            job.files,
        )
    assert client.policies.simulate(client.config).jobs == (), "all is done"
    assert client.jobs.list() == [], "nothing was queued"


def test_a_stricter_policy_has_more_jobs_and_a_disabled_one_none(client):
    assert len(client.policies.simulate(other(policy={"min_files": 2})).jobs) == 3
    assert client.policies.simulate(other(policy={"min_files": 50})).totals()["jobs"] == 0
    disabled = client.policies.simulate(other(policy={"enabled": False}))
    assert disabled.jobs == ()
    assert len(disabled.skipped) == 3


def test_windows_and_budgets_say_when_jobs_would_start(client):
    window = {"cron": "0 22 * * *", "for": "1h"}
    simulation = client.policies.simulate(other(policy={"windows": [window]}))
    for job in simulation.jobs:
        starts = datetime.fromtimestamp(job.starts_at, UTC)
        assert starts.hour == 22
    free = client.policies.simulate(other())
    (one, two) = free.jobs
    assert one.starts_at == two.starts_at, "two slots are free"
    most = max(one.bytes, two.bytes)
    tight = client.policies.simulate(other(budget={"all": {"bytes_per_day": most}}))
    first, second = (datetime.fromtimestamp(job.starts_at, UTC) for job in tight.jobs)
    assert second.date() > first.date()
    never = client.policies.simulate(other(budget={"all": {"bytes_per_day": 0}}))
    assert {job.starts_at for job in never.jobs} == {None}


def test_large_tables_are_cut_into_slices(client):
    sizes = [job.bytes for job in client.policies.simulate(other()).jobs]
    simulation = client.policies.simulate(other(policy={"slice_bytes": min(sizes) // 2}))
    assert all(job.slices >= 2 for job in simulation.jobs)


def test_the_command_compares_a_file_with_the_present_one(client, file, tmp_path, capsys):
    strict = tmp_path / "strict.toml"
    strict.write_text(file.read_text() + "min_files = 2\n")
    arguments = ["policies", "simulate", str(strict), "--config", str(file)]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "this file" in shown
    assert "clicks" in "".join(shown.split())  # long paths are wrapped
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["totals"]["jobs"], document["present_totals"]["jobs"]) == (3, 2)
