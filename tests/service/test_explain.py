"""Explanations of tables: true, and complete."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.cli.main import run
from lakehand.service.config import parse_config
from lakehand.service.store.table_registry import RegisteredTable
from lakehand.service.table_explanation import job_ratios, window_state
from lakehand.service.triggers import changes_seen, find_trigger
from lakehand.service.windows import windows_of

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()


def table_with(**values):
    """Return a row of the registry; what is not given is nothing."""
    empty = dict.fromkeys((item.name for item in fields(RegisteredTable)), None)
    return RegisteredTable(**{**empty, "overrides": {}, "scheduled": {}, **values})


numbers = st.integers(0, 30)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        table_with,
        version=numbers,
        assessed_version=st.none() | numbers,
        assessed_at=st.none() | st.sampled_from([NOW, NOW - 299, NOW - 300, NOW - 9e4]),
        commits_since=numbers,
        bytes_since=st.sampled_from([0, 2**30 - 1, 2**30]),
    ),
    st.integers(1, 20),
)
def test_a_check_is_said_to_be_due_exactly_where_the_scheduler_makes_one(table, commits):
    document = {"policy": {"default": {"check_after": {"commits": commits}}}}
    policy = parse_config(document).policies[0]
    trigger = find_trigger(table, policy, changes_seen(table, table.version), NOW)
    due = [one.name for one in job_ratios(table, policy, NOW) if one.ratio >= 1]
    assert bool(due) == (trigger is not None)
    if trigger is not None:
        assert {"found": "never_maintained"}.get(trigger, trigger) in due


crons = st.builds("{} {} * * *".format, st.sampled_from([0, 30]), st.integers(0, 23))
windows = st.lists(
    st.builds(
        lambda cron, hours: {"cron": cron, "for": f"{hours}h"}, crons, st.sampled_from([1, 7, 24])
    ),
    max_size=2,
)


@settings(max_examples=30, deadline=None)
@given(windows, windows, st.sampled_from(["UTC", "Europe/Berlin"]), st.integers(0, 86_399))
def test_the_next_opening_and_closing_are_the_first_of_two_days(opens, quiet, zone, second):
    document = {
        "service": {"time_zone": zone},
        "policy": {"default": {"windows": opens, "quiet": quiet}},
    }
    config = parse_config(document)
    states = windows_of(config.policies[0], config.service.time_zone)
    now = NOW + second
    found = window_state(config, config.policies[0], now)
    moments = [now + 900 * n for n in range(2 * 24 * 4)]
    is_open = [states.is_open(datetime.fromtimestamp(moment, UTC)) for moment in moments]
    assert found.is_open == is_open[0]
    if not any(is_open):
        assert not found.is_open
        return
    first = is_open.index(True)
    if not found.is_open:
        assert moments[first - 1] < found.opens_at <= moments[first]
    if False in is_open[first:]:
        last = is_open.index(False, first)
        assert moments[last - 1] < found.closes_at <= moments[last]


@pytest.fixture
def lake(tmp_path):
    for number in range(12):
        rows = pa.table({"id": [number]})
        deltalake.write_deltalake(str(tmp_path / "lake/sales/orders"), rows, mode="append")
    return tmp_path / "lake"


@pytest.fixture
def config_file(tmp_path, lake):
    path = tmp_path / "lakehand.toml"
    path.write_text(f"""
[service]
store = "sqlite:///{tmp_path}/jobs.db"

[[source]]
name = "lake"
include = ["{lake}"]

[policy.sales]
match = ["{lake}/sales/**"]
min_files = 6
windows = [{{ cron = "0 22 * * *", for = "1m" }}, {{ cron = "0 10 * * *", for = "1m" }}]

[policy.wide]
match = ["{lake}/**"]
""")
    return path


@pytest.fixture
def client(config_file):
    with lakehand.ServiceClient(config_file, create=True, by="ann") as opened:
        opened.tables.discover()
        yield opened


def test_an_explanation_says_which_policy_and_why(client, lake):
    found = client.tables.explain("orders")
    assert (found.choice.policy, found.choice.pattern) == ("sales", f"{lake}/sales/**")
    assert found.choice.others == (f"wide: {lake}/**", "default: **")


def test_an_explanation_has_every_number_against_its_threshold(client):
    found = {one.name: one for one in client.tables.explain("orders").ratios}
    assert found["never_maintained"].ratio == 1
    small = found["small_files_of_a_partition"]
    assert (small.value, small.threshold, small.setting) == (12, 6, "min_files")
    assert found["commits_since_checkpoint"].ratio > 0
    assert found["deleted_rows_of_a_file"].value == 0


def test_an_explanation_says_where_each_setting_comes_from(client, monkeypatch):
    monkeypatch.setenv("LAKEHAND_QUIET_PERIOD", "1m")
    client.tables.set("orders", target_file_bytes="1MiB")
    sources = {one.name: one.source for one in client.tables.explain("orders").settings}
    assert sources["target_file_bytes"] == "table"
    assert sources["min_files"] == "policy sales"
    assert sources["quiet_period"].startswith("environment")
    assert sources["small_file_ratio"] == "default"


def test_an_explanation_names_what_keeps_jobs_from_starting(client):
    job = client.jobs.submit("orders")
    client.tables.pause("orders", why="migration")
    client.service.pause()
    found = client.tables.explain("orders")
    assert [kind for kind, _ in found.obstacles] == ["service_paused", "table_paused"]
    (entry,) = found.jobs
    assert entry.job.id == job.job.id
    assert [(wait.reason, wait.paused) for wait in entry.waits] == [
        ("paused", "table"),
        ("paused", "service"),
        ("no_worker", None),
    ]


def test_the_command_shows_the_explanation(client, config_file, capsys):
    client.jobs.submit("orders")
    arguments = ["tables", "explain", "orders", "--config", str(config_file)]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    for words in ("sales, because of", "opens in", "12", "2.00, due", "waits for a worker"):
        assert words in shown
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policy"]["policy"] == "sales"
    assert document["is_check_due"]
    assert document["jobs"][0]["waits_for"] == "no_worker"
    assert document["settings"]["min_files"] == {"value": 6, "source": "policy sales"}


def test_a_table_that_cannot_be_read_is_explained_as_far_as_it_is_known(client, lake):
    (lake / "sales/orders/_delta_log/00000000000000000003.json").unlink()
    found = client.tables.explain("orders")
    assert found.unread is not None
    assert {one.of for one in found.ratios} == {"job"}
