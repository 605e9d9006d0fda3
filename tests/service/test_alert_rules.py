"""Alert rules and the dashboard: valid, complete, and each alert fires when it should."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from lakehand.service.store.service_metrics import FAMILIES
from support.prometheus_server import DASHBOARD, RULES, dashboard_queries, find_program

ROOT = Path(__file__).parents[2]
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())
#: A service that is well: series without the prefix, and their values, one per minute.
WELL = {
    'build_info{version="1"}': "1x1500",
    "scheduler_is_leader": "1x1500",
    'workers{state="running"}': "2x1500",
    'jobs{state="queued",verb="maintain",pool="default"}': "5x1500",
    'proof_failures_total{verb="compact"}': "0x1500",
    "tables_held": "0x1500",
    "tables_unhealthy": "0x1500",
    'tables{source="lake",state="ok"}': "9x1500",
    'tables{source="lake",state="unreadable"}': "0x1500",
    'job_attempts_total{verb="maintain",outcome="committed"}': "0+1x1500",
    'job_attempts_total{verb="maintain",outcome="failed"}': "0+0.02x1500",
    "oldest_queued_seconds": "60x1500",
    "assessment_lag_seconds": "1x1500",
    "leases_lost_total": "0x1500",
    'discoveries_total{source="lake",outcome="complete"}': "0+1x1500",
    'discoveries_total{source="lake",outcome="failed"}': "0+0.1x1500",
    'budget_allowed{scope="all",unit="bytes"}': "100x1500",
    'budget_reserved{scope="all",unit="bytes"}': "5x1500",
    'budget_spent{scope="all",unit="bytes"}': "80x1500",
    "webhook_deliveries_waiting": "3x1500",
    'webhook_deliveries_total{outcome="dropped"}': "0x1500",
    'config_reloads_total{outcome="refused"}': "0x1500",
    "service_paused": "0x1500",
}
#: What makes each alert fire, and after how many minutes.
SICK = {
    "LakehandDown": (dict.fromkeys(WELL), 6),
    "LakehandNoScheduler": ({"scheduler_is_leader": "0x1500"}, 6),
    "LakehandNoWorker": ({'workers{state="running"}': "0x1500"}, 11),
    "LakehandProofFailed": ({'proof_failures_total{verb="compact"}': "0 0 1x1500"}, 5),
    "LakehandTableHeld": ({"tables_held": "1x1500"}, 6),
    "LakehandTableUnreadable": ({'tables{source="lake",state="unreadable"}': "1x1500"}, 16),
    "LakehandTableUnhealthy": ({"tables_unhealthy": "1x1500"}, 361),
    "LakehandJobsFailing": (
        {'job_attempts_total{verb="maintain",outcome="failed"}': "0+0.5x1500"},
        60,
    ),
    "LakehandBacklog": ({"oldest_queued_seconds": "30000x1500"}, 16),
    "LakehandAssessmentLag": ({"assessment_lag_seconds": "1000x1500"}, 16),
    "LakehandWorkersLost": ({"leases_lost_total": "0+0.2x1500"}, 60),
    "LakehandDiscoveryFailing": (
        {'discoveries_total{source="lake",outcome="complete"}': "7x1500"},
        60,
    ),
    "LakehandBudgetUsedUp": ({'budget_spent{scope="all",unit="bytes"}': "91x1500"}, 11),
    "LakehandWebhooksFailing": ({"webhook_deliveries_waiting": "200x1500"}, 16),
    "LakehandConfigRefused": ({'config_reloads_total{outcome="refused"}': "0 0 1x1500"}, 5),
    "LakehandPaused": ({"service_paused": "1x1500"}, 1441),
}


@pytest.fixture(scope="module")
def promtool():
    found = find_program("promtool")
    if found is None and os.environ.get("LAKEHAND_ALLOW_SKIPS"):
        pytest.skip("Prometheus is not installed")
    assert found is not None, "scripts/install-prometheus installs promtool"

    def run(*arguments):
        done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def scenario(changes, minutes, expected):
    """Two processes are scraped, which tell the same; exactly the expected alerts fire."""
    series = {name: values for name, values in {**WELL, **changes}.items() if values is not None}
    inputs = [
        {"series": f"lakehand_{_with_instance(name, instance)}", "values": values}
        for name, values in series.items()
        for instance in "ab"
    ]
    fired = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in expected],
    }
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": [fired]}


def _with_instance(name, instance):
    label = f'instance="{instance}"'
    return f"{name[:-1]},{label}}}" if name.endswith("}") else f"{name}{{{label}}}"


def test_every_alert_has_a_scenario_and_a_runbook():
    assert set(SICK) == set(ALERTS)
    runbook = (ROOT / "docs/guides/alerts.md").read_text()
    headings = re.findall(r"^### (Lakehand\w+)$", runbook, re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)
    links = re.findall(r"runbook_url: docs/guides/alerts.md#(\w+)", RULES.read_text())
    assert links == [alert.lower() for alert in ALERTS]


def test_each_alert_fires_when_it_should_and_no_other(promtool, tmp_path):
    tests = [scenario({}, minutes, []) for minutes in (60, 1441)]
    tests += [scenario(changes, minutes, [alert]) for alert, (changes, minutes) in SICK.items()]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    promtool("test", "rules", str(tmp_path / "tests.yml"))


def test_rules_are_valid(promtool):
    promtool("check", "rules", str(RULES))


def test_the_queries_of_the_dashboard_are_valid(promtool, tmp_path):
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(dashboard_queries())]
    assert len(rules) > 20
    document = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "rules.yml").write_text(json.dumps(document))
    promtool("check", "rules", str(tmp_path / "rules.yml"))


@pytest.mark.parametrize("path", [RULES, DASHBOARD, ROOT / "docs/guides/metrics.md"], ids=str)
def test_every_metric_that_is_asked_for_exists(path):
    known = set()
    for family in FAMILIES:
        parts = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        known |= {f"{family.full_name}{part}" for part in parts}
    text = path.read_text() if path != DASHBOARD else "\n".join(dashboard_queries())
    named = set(re.findall(r"\blakehand_\w+", text)) - {"lakehand_run"}
    assert len(named) > 10
    assert {name for name in named if not name.startswith("lakehand_run_")} <= known


def test_the_dashboard_has_no_overlapping_panels():
    places = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert 0 <= x < 24
                assert places.setdefault((x, y), panel["id"]) == panel["id"]
