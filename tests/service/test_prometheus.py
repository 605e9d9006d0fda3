"""A real Prometheus scrapes a real service, and an alert fires on a table that is made sick."""

from __future__ import annotations

import os
import re

import pyarrow as pa
import pytest

import lakehand
from support.prometheus_server import RULES, dashboard_queries, find_program, run_prometheus
from support.serving import EAGER, Lake

STEPS = 'steps = ["compact"]\n'


@pytest.fixture
def lake(tmp_path):
    if find_program("prometheus") is None and os.environ.get("LAKEHAND_ALLOW_SKIPS"):
        pytest.skip("Prometheus is not installed")
    opened = Lake(tmp_path / "lake")
    yield opened
    opened.kill_all()


def at_once():
    """Return the rules of the product, without the time that a condition must last."""
    return re.sub(r"^( +for: )\w+$", r"\g<1>0s", RULES.read_text(), flags=re.MULTILINE)


def test_an_alert_fires_on_a_sick_table_and_ends_with_its_cure(lake, tmp_path):
    lake.configure(EAGER + STEPS)
    path = lake.create("orders")
    lake.create("customers")
    commit = max((path / "_delta_log").glob("*.json"))
    sound = commit.read_bytes()
    commit.write_bytes(b'{"add": ')
    lake.start()
    url = lake.wait_for(lambda: re.search(r"Listening at http://(\S+)", lake.read_log()))
    with run_prometheus(tmp_path, url.group(1), at_once()) as prometheus:
        lake.wait_for(lambda: "LakehandTableHeld" in prometheus.firing())
        lake.wait_for(lambda: lake.file_counts(["customers"]) == {"customers": 1})
        assert prometheus.firing() == {"LakehandTableHeld"}
        held = prometheus.get("query", query="lakehand_table_held == 1")["result"]
        assert [one["metric"]["table"] for one in held] == [path.as_uri()]

        commit.write_bytes(sound)
        table = lakehand.open_table(path)
        table.append(pa.table({"part": [0], "id": [99]}, schema=table.snapshot().schema))
        lake.wait_for(lambda: prometheus.firing() == set())
        lake.wait_for(lambda: lake.file_counts() == {"customers": 1, "orders": 1})
        for query in dashboard_queries():
            assert prometheus.get("query", query=query)["resultType"] in {"vector", "scalar"}
        removed = 'sum(lakehand_files_removed_total{verb="compact"})'
        lake.wait_for(lambda: _value(prometheus, removed) == 9)
    assert lake.end() == 0


def _value(prometheus, query):
    return float(prometheus.get("query", query=query)["result"][0]["value"][1])
