"""What tasks of vacuum do, one by one, and who lists what."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lakehand.engine.exchange import pack_columns, unpack_columns
from lakehand.errors import StoreUnreachableError
from lakehand.formats.delta.retention.vacuum import DataNames
from lakehand.retention.vacuum_tasks import DeleteTask, ListTask, VacuumTasks, Window
from lakehand.runs.operation import Call
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.tables_with_orphans import DIRECTORIES, FILES_A_DIRECTORY, make_table_with_orphans
from support.tasks_here import TasksHere

KEYS = {"d=000/part-02.parquet", "d=000/part-03.parquet", "nowhere/gone.parquet"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_table_with_orphans(tmp_path_factory.mktemp("littered") / "table")


@pytest.fixture
def store(tmp_path):
    for key in KEYS - {"nowhere/gone.parquet"}:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).touch()
    return open_store(tmp_path)


def all_keys(batches) -> list[str]:
    return sorted(key for batch in batches for key in batch["key"].to_pylist())


def payload(keys):
    return {"files": pack_columns(pa.table({"key": sorted(keys)}))}


def test_a_task_deletes_within_its_window_and_misses_nothing_that_is_gone(store):
    task = DeleteTask(store=store, window=Window.from_now())

    assert task(payload(KEYS)) == task(payload(KEYS)) == {"tried": 3, "failures": []}
    assert not [*store.list()]


@pytest.mark.parametrize("shift", [-1000, 1000], ids=["after it", "by a clock that is behind"])
def test_outside_of_its_window_a_task_deletes_nothing(store, shift):
    now = time.time() + shift
    late = DeleteTask(store=store, window=Window(opens_at=now - 10, closes_at=now + 10))

    assert late(payload(KEYS)) == {"tried": 0, "failures": []}
    assert len([*store.list()]) == 2


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda store: ListTask(store=store, names=DataNames()), {"directories": [""]}),
        (lambda store: DeleteTask(store=store, window=Window.from_now()), {}),
    ],
    ids=["list", "delete"],
)
def test_an_executor_that_does_not_see_the_table_says_so(tmp_path, make, told):
    task = make(open_store(tmp_path / "elsewhere"))
    with pytest.raises(StoreUnreachableError, match="does not see"):
        task({**payload(KEYS), "most_objects": 1, **told})


def test_a_scan_stops_at_enough_objects_and_says_what_is_left(place):
    store, names = open_store(place), DataNames()
    first = store.scan(enter=names.may_hold_data, most_objects=10)
    found = all_keys(first)
    rest = store.scan(enter=names.may_hold_data, directories=first.left)

    assert 10 <= len(found) < DIRECTORIES * FILES_A_DIRECTORY
    whole = all_keys(store.scan(enter=names.may_hold_data))
    assert sorted(found + all_keys(rest)) == whole
    assert len(whole) == DIRECTORIES * FILES_A_DIRECTORY + len(["readme.md"])


def vacuum_tasks(place, asked) -> VacuumTasks:
    table = SimpleNamespace(store=open_store(place))
    return VacuumTasks(
        Call(operation="vacuum", table=table, settings=Settings(asked, environment={}))
    )


def test_few_directories_are_only_opened_so_that_more_tasks_share_the_rest(place, monkeypatch):
    store, names = open_store(place), DataNames()
    rounds = []

    class Counting(TasksHere):
        def run(self, function, payloads, **options):
            rounds.append(len(payloads))
            assert isinstance(function, ListTask)
            return super().run(function, payloads, **options)

    tasks = vacuum_tasks(place, {"master": "local[1]"})
    monkeypatch.setattr(tasks._tasks, "runner", Counting())
    listed = all_keys(tasks.list([""], names=names))

    assert listed == all_keys(store.scan(enter=names.may_hold_data))
    assert rounds[0] == 1
    assert max(rounds) > 20


def test_columns_are_the_same_after_the_journey(place):
    files = next(iter(open_store(place).scan()))
    table = pa.Table.from_batches([files])
    assert unpack_columns(pack_columns(table)).equals(table)


@pytest.mark.parametrize(
    ("asked", "files", "is_needed"),
    [
        ({}, 10**9, False),
        ({"engine": "local"}, 10**9, False),
        ({"engine": "spark"}, 500_000, False),
        ({"engine": "spark"}, 500_001, True),
        ({"engine": "spark", "vacuum_tasks_above": 0}, 1, True),
    ],
)
def test_tasks_are_for_many_files_where_somebody_asks_for_spark(place, asked, files, is_needed):
    with vacuum_tasks(place, asked) as tasks:
        assert tasks.is_needed(files) is is_needed
