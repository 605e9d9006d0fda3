"""Tables of many engines and versions: `verify` calls nothing wrong that is right."""

from __future__ import annotations

import pytest

from lakehand.assess import structure_check
from lakehand.formats.delta.table import DeltaTable
from lakehand.runs.operation import Call
from lakehand.settings import Settings
from support.golden import golden_names, golden_store, opened_names
from support.tasks_here import run_tasks_here

#: What is really wrong with them, apart from data files, which many of them never had.
DAMAGED = {
    "checkpoint": {"stale_hadoop_sum"},
    "corrupted-last-checkpoint-kernel": {"corrupt_last_checkpoint"},
    "data-reader-absolute-paths-escaped-chars": {"incomplete_log"},
    "deltalog-state-reconstruction-from-checkpoint-missing-metadata": {
        "broken_checkpoint",
        "stale_last_checkpoint",
    },
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": {
        "broken_checkpoint",
        "stale_last_checkpoint",
    },
    "deltalog-invalid-protocol-version": {"unknown_feature"},
    "deltalog-state-reconstruction-without-metadata": {"incomplete_log"},
    "deltalog-state-reconstruction-without-protocol": {"incomplete_log"},
    "versions-not-contiguous": {"missing_commit"},
}
#: Deleted rows, mapped and widened columns, old calendars, nested and strange values.
DEEP = (
    "dv-with-columnmapping",
    "type-widening",
    "spark-variant-checkpoint",
    "data-reader-date-types-UTC",
)


@pytest.mark.parametrize("name", golden_names())
def test_only_what_is_damaged_is_called_so(name):
    check = DeltaTable(golden_store(name)).check_log()
    assert {finding.name for finding in check.findings} == DAMAGED.get(name, set())


@pytest.mark.parametrize("name", [name for name in DEEP if name in opened_names()])
def test_rows_and_statistics_of_other_engines_agree(name, monkeypatch):
    run_tasks_here(monkeypatch)
    table = DeltaTable(golden_store(name))
    found = structure_check.check_structure(
        Call(operation="verify", table=table, settings=Settings()), deep=True
    )
    assert found.findings == ()
    assert found.files > 0
