"""Every verb hands its report to subscribers, once, and every progress value with it."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

import lakehand
from lakehand.hot import HotTable
from lakehand.model.reports import Report
from lakehand.observe import Progress, subscribe
from lakehand.table import Table
from support.formats import KITS, open_here, some_rows, tasks_inline

#: A call of every verb that returns a report, by its name.
VERBS = {
    "inspect": lambda table: table.inspect(),
    "health": lambda table: table.health(),
    "advise": lambda table: table.advise(),
    "compact": lambda table: table.compact(min_files=2, recompute_statistics=True),
    "cluster": lambda table: table.cluster(by="id"),
    "statistics": lambda table: table.statistics(full=True),
    "maintain": lambda table: table.maintain(),
    "vacuum": lambda table: table.vacuum(),
    "checkpoint": lambda table: table.checkpoint(),
    "clean_logs": lambda table: table.clean_logs(),
    "purge": lambda table: table.purge(),
    "set_properties": lambda table: table.set_properties({"team": "x"}),
    "unset_properties": lambda table: table.unset_properties(["team"], if_exists=True),
    "enable_feature": lambda table: table.enable_feature("domainMetadata"),
    "cluster_by": lambda table: table.cluster_by("id"),
    "append": lambda table: table.append(some_rows(100)),
    "overwrite": lambda table: table.overwrite(some_rows(100)),
    "upsert": lambda table: table.upsert(some_rows(4, at=1), key=["id"]),
    "delete_keys": lambda table: table.delete_keys(pa.table({"id": [3]}), key=["id"]),
    "delete": lambda table: table.delete(where="id = 3"),
    "deduplicate": lambda table: table.deduplicate(key=["word"]),
    "verify": lambda table: table.verify(deep=True),
    "repair": lambda table: table.repair(),
    "restore": lambda table: table.restore(version=1),
}
PROPERTIES = {"set_properties", "unset_properties", "enable_feature", "cluster_by"}
#: They run no tasks, or say nothing before their end.
WITHOUT_PROGRESS = {
    *("inspect", "health", "advise", "checkpoint", "clean_logs", "append", "overwrite", "restore"),
    *PROPERTIES,
}
#: Verbs that Lance tables have no use for.
NOT_FOR_LANCE = {"advise", "statistics", "checkpoint", "clean_logs", *PROPERTIES}
CASES = [
    (name, verb) for name in KITS for verb in VERBS if name != "lance" or verb not in NOT_FOR_LANCE
]


def _reports(events: list) -> list:
    return [event for event in events if not isinstance(event, Progress)]


def test_all_verbs_are_here():
    words = ("Report", "Verification", "Inspection", "Advice")
    annotations = {
        name: inspect.signature(method).return_annotation
        for name, method in inspect.getmembers(Table, inspect.isfunction)
        if not name.startswith("_")
    }
    found = {name for name, annotation in annotations.items() if annotation.endswith(words)}
    assert found - {"inspect_snapshot"} == VERBS.keys()


@pytest.mark.parametrize(("name", "verb"), CASES, ids=lambda value: value)
def test_a_verb_emits_its_report_once(name, verb, tmp_path):
    table = open_here(KITS[name].make(tmp_path / "t", files=3))
    events = []
    with tasks_inline(), subscribe(events.append):
        report = VERBS[verb](table)

    reports = _reports(events)
    assert [one is report for one in reports].count(True) == 1
    assert reports[-1] is report, "an operation that is made of others ends last"
    assert len({id(one) for one in reports}) == len(reports)
    assert sum(getattr(one, "operation", verb) == verb for one in reports) == 1
    progress = [event for event in events if isinstance(event, Progress)]
    assert {one.table for one in progress} <= {table.url}
    assert all(one.operation for one in progress)
    assert bool(progress) == (verb not in WITHOUT_PROGRESS)


def test_reports_of_operations_share_their_first_fields(tmp_path):
    table = open_here(KITS["delta"].make(tmp_path / "t", files=3))
    report = table.vacuum(dry_run=True)

    assert isinstance(report, Report)
    assert list(report.to_json())[:4] == ["operation", "outcome", "table", "version"]
    assert (report.errors, report.table) == ((), table.url)
    checkpoint = table.checkpoint()
    assert checkpoint.errors == ()
    assert "errors" not in checkpoint.to_json()


def test_a_table_that_cannot_be_opened_is_reported_as_well(tmp_path):
    events = []
    with subscribe(events.append):
        report = lakehand.check_health(tmp_path / "nowhere")
    assert events == [report]


def test_a_flush_of_a_hot_table_is_reported(tmp_path):
    path = KITS["delta"].make(tmp_path / "t", files=1)
    events = []
    with HotTable(path, log=tmp_path / "log", key=["id"]) as hot, subscribe(events.append):
        hot.upsert(some_rows(2, at=1))
        report = hot.flush()
    assert _reports(events) == [report]
    assert "operation" not in report.to_json()


def test_a_subscriber_that_fails_breaks_no_verb(tmp_path, caplog):
    def fail(_event):
        raise RuntimeError("subscriber is broken")

    table = open_here(KITS["delta"].make(tmp_path / "t", files=3))
    with tasks_inline(), subscribe(fail):
        assert table.compact(min_files=2).outcome == "committed"
    assert "subscriber is broken" in caplog.text
