"""Ledgers of a later lakehand, and damaged ones: none of them stops a run or loses a file."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from lakehand.errors import RunError
from lakehand.observe.clock import ManualClock
from lakehand.runs import list_runs, living_runs, resume, sweep
from lakehand.runs.state import versions_under_way
from lakehand.storage import MemoryStore
from support.ledgers import LedgerTable, do_group, start_run, write_output

SILENCE = timedelta(minutes=3)
REMOVED = object()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(request, clock):
    store = MemoryStore(request.node.nodeid.replace("/", "-"), clock=clock)
    return LedgerTable.with_files(store, "a", "b", "c")


def leave_run(table, clock, *, commits: bool = False):
    """Leave a silent run with one result, which it may be about to commit, and one attempt."""
    run = start_run(table, table.groups("a", "b"), clock)
    result = do_group(run, table.groups("a", "b")[0])
    write_output(run, table.groups("a", "b")[1])
    run.beat()
    if commits:
        run.decide_fate([result], base_version=0)
    clock.advance(SILENCE.total_seconds())
    return run


def edit(run, name: str, **members) -> None:
    """Change members of the first document of that name in the ledger of `run`."""
    key = next(info.key for info in run.store.list(run.key()) if name in info.key)
    value = json.loads(run.store.get(key))
    kept = {**value, **members}
    run.store.put(key, json.dumps({k: v for k, v in kept.items() if v is not REMOVED}).encode())


def files(table):
    return {info.key for info in table.store.list() if not info.key.startswith("_lakehand")}


DOCUMENTS = ("run.json", "heartbeat.json", "stems/", "groups/", "results/", "fates/")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_members_that_are_not_known_are_ignored(table, clock, name):
    run = leave_run(table, clock, commits=name == "fates/")
    edit(run, name, of_a_later_lakehand={"x": 1})
    sweep(table, clock=clock)
    if name == "fates/":
        assert len(files(table)) == 4
    else:
        assert (files(table), list_runs(table.store)) == ({"a", "b", "c"}, [])


DAMAGES = {
    "no start": ("run.json", {"started_at": REMOVED}),
    "naive start": ("run.json", {"started_at": "2026-01-01T00:00:00"}),
    "start is a number": ("run.json", {"started_at": 5}),
    "base version is a text": ("run.json", {"base_version": "x"}),
    "plan is a list": ("run.json", {"plan": [1]}),
    "no beat": ("heartbeat.json", {"at": REMOVED}),
    "naive beat": ("heartbeat.json", {"at": "2026-01-01T00:00:00"}),
    "null beat": ("heartbeat.json", {"at": None}),
    "no stem": ("stems/", {"stem": REMOVED}),
    "empty stem": ("stems/", {"stem": ""}),
    "stem of another run": ("stems/", {"stem": "lakehand-20260101T000000-abc-0"}),
    "directory is a number": ("stems/", {"directory": 7}),
    "directory outside": ("stems/", {"directory": "../../etc"}),
    "files are a text": ("stems/", {"files": "abc"}),
    "no outputs": ("results/", {"outputs": REMOVED}),
    "outputs are null": ("results/", {"outputs": None}),
    "outputs are texts": ("results/", {"outputs": ["x"]}),
    "output without a path": ("results/", {"outputs": [{"bytes": 1, "rows": 1}]}),
    "output outside": ("results/", {"outputs": [{"path": "../x", "bytes": 1, "rows": 1}]}),
    "no proof": ("results/", {"proof": REMOVED}),
    "group is a text": ("results/", {"group": "0"}),
    "group of another result": ("results/", {"group": 1}),
    "another group": ("groups/", {"id": 1}),
    "no inputs": ("groups/", {"inputs": REMOVED}),
    "fate without outputs": ("fates/", {"outputs": REMOVED}),
    "fate of an unknown kind": ("fates/", {"kind": "lent"}),
    "fate at a naive time": ("fates/", {"at": "2026-01-01T00:00:00"}),
    "fate without a token": ("fates/", {"token": None}),
    "fate of another batch": ("fates/", {"batch": 1}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ledger_of_another_shape_is_left_alone_with_a_warning(table, clock, caplog, damage):
    name, members = DAMAGES[damage]
    odd = leave_run(table, clock, commits=name == "fates/")
    edit(odd, name, **members)
    before, kept = odd.entries(), files(table)
    other = leave_run(table, clock)
    with caplog.at_level(logging.WARNING):
        sweep(table, clock=clock)
    assert files(table) == kept
    assert list_runs(table.store) == [odd.id]
    assert odd.entries() == before, "another run wrote to the ledger"
    assert any(odd.id in record.getMessage() for record in caplog.records)
    assert other.identity() is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_of_a_ledger_of_another_shape_is_adopted(table, clock, damage):
    name, members = DAMAGES[damage]
    odd = leave_run(table, clock, commits=name == "fates/")
    edit(odd, name, **members)
    heir = start_run(table, [], clock)
    assert resume(heir, table, table.snapshot(), wanted=lambda _: True) == []
    assert heir.results() == []


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("results/", {"proof": None}),
        ("results/", {"outputs": []}),
        ("groups/", {"inputs": []}),
    ],
)
def test_a_result_whose_proof_is_for_other_rows_is_not_adopted(table, clock, name, members):
    run = leave_run(table, clock)
    edit(run, name, **members)
    heir = start_run(table, [], clock)
    assert resume(heir, table, table.snapshot(), wanted=lambda _: True) == []


def test_a_result_of_a_dead_run_is_adopted_if_all_of_it_fits(table, clock):
    leave_run(table, clock)
    heir = start_run(table, [], clock)
    assert len(resume(heir, table, table.snapshot(), wanted=lambda _: True)) == 1


def test_a_run_whose_process_has_an_impossible_number_counts_as_living(table, clock):
    run = start_run(table, table.groups("a"), clock)
    edit(run, "run.json", pid=2**70)
    living = living_runs(table.store, clock=clock, takeover_after=SILENCE)
    assert [one.id for one in living] == [run.id]


def test_results_of_another_lakehand_are_not_adopted(table, clock):
    run = leave_run(table, clock)
    edit(run, "run.json", lakehand="99.0.0")
    heir = start_run(table, [], clock)
    assert resume(heir, table, table.snapshot(), wanted=lambda _: True) == []


@pytest.mark.parametrize(
    "text",
    [b"", b"null", b"[]", b"\xff\xfe", pytest.param(b"[" * 100_000, id="deep"), b'{"at": 1e999}'],
)
def test_bytes_that_are_no_document_are_left_alone_too(table, clock, text):
    odd = leave_run(table, clock)
    odd.store.put(odd.key("heartbeat.json"), text)
    kept = files(table)
    sweep(table, clock=clock)
    assert (files(table), list_runs(table.store)) == (kept, [odd.id])


def test_a_living_run_whose_version_cannot_be_told_stops_a_vacuum_with_a_typed_error(table, clock):
    run = leave_run(table, clock)
    edit(run, "run.json", base_version="x")
    with pytest.raises(RunError, match=r"run\.json"):
        versions_under_way(table.store, now=clock.now(), takeover_after=timedelta(days=1))
