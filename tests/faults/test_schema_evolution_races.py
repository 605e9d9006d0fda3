"""Writers that change a table at the same time: no row, no column and no property is lost."""

from __future__ import annotations

import json
import random
import threading
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ConstraintError, SchemaMismatchError, StoreUnreachableError
from lakehand.model.work import Change
from lakehand.observe.steps import Step
from lakehand.sink import TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, open_store
from support.crash import kill_at, run_and_kill

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["none", "name"])
def place(tmp_path, request):
    lakehand.create_table(
        tmp_path / "t", SCHEMA, properties={"delta.columnMapping.mode": request.param}
    )
    return tmp_path / "t"


def content(place: Any) -> dict[int, dict[str, Any]]:
    found = lakehand.open_table(place).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def race(place: Any, ours: dict[str, Any], theirs: dict[str, Any], **settings: Any) -> None:
    """Write `ours` for the table as it is, then commit `theirs`, and then ours."""
    with TableSink(place, writer_id="w", schema_evolution=True, **settings) as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [1], **ours}))
        sink.pre_commit()
        other = lakehand.open_table(place)
        other.append(pa.table({"id": [2], **theirs}), schema_evolution=True)
        sink.commit_epoch()


def columns(place: Any) -> list[str]:
    return lakehand.open_table(place).snapshot().schema.names


def test_two_writers_that_add_the_same_column_share_it(place):
    race(place, {"x": ["ours"]}, {"x": ["theirs"]})
    assert columns(place) == ["id", "x"]
    assert {number: row["x"] for number, row in content(place).items()} == {1: "ours", 2: "theirs"}


def test_two_writers_that_add_different_columns_add_both(place):
    race(place, {"x": ["ours"]}, {"y": ["theirs"]})
    assert columns(place) == ["id", "y", "x"]
    found = content(place)
    assert found[1] == {"id": 1, "y": None, "x": "ours"}
    assert found[2] == {"id": 2, "y": "theirs", "x": None}
    assert len(list(place.glob("**/*.parquet"))) == 2


def test_the_same_column_of_a_narrower_type_is_widened_where_that_is_allowed(place):
    narrow = {"x": pa.array([7], pa.int8())}
    race(place, {"x": [2**40]}, narrow, type_widening=True)
    assert {number: row["x"] for number, row in content(place).items()} == {1: 2**40, 2: 7}


def test_the_same_column_of_another_type_is_refused_and_the_rows_can_be_written_again(place):
    with pytest.raises(SchemaMismatchError, match="'x' is int64, and the table has string"):
        race(place, {"x": [1]}, {"x": ["theirs"]})
    assert content(place) == {2: {"id": 2, "x": "theirs"}}
    with TableSink(place, writer_id="w") as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [1], "x": ["1"]}))
        sink.commit_epoch()
    assert content(place)[1] == {"id": 1, "x": "1"}


def test_a_property_that_is_set_meanwhile_is_kept(place):
    with TableSink(place, writer_id="w", schema_evolution=True) as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [1], "x": [1]}))
        sink.pre_commit()
        set_property(place, "delta.logRetentionDuration", "interval 40 days")
        sink.commit_epoch()
    properties = lakehand.open_table(place).snapshot().properties
    assert properties["delta.logRetentionDuration"] == "interval 40 days"
    assert content(place) == {1: {"id": 1, "x": 1}}


def set_property(place: Any, name: str, value: str, **others: Any) -> None:
    """Set a property, and whatever else a table says of itself."""
    table = lakehand.open_table(place)._handle
    state = table.head().native
    configuration = {**state.metadata.configuration, name: value}
    metadata = replace(state.metadata, configuration=configuration, **others)
    change = Change(
        kind="metadata",
        base_version=state.segment.version,
        operation="SET TBLPROPERTIES",
        native=({"metaData": metadata.to_json()},),
    )
    table.commit(change, token=str(uuid.uuid4()))


def test_a_commit_with_columns_whose_answer_is_lost_is_there_once(place):
    fault = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key="_delta_log/*.json")
    store = FaultStore(open_store(place), [fault])
    with TableSink(store, writer_id="w", schema_evolution=True) as sink:
        for epoch in (1, 2):
            sink.begin_epoch(epoch)
            sink.write(pa.table({"id": [epoch], f"c{epoch}": [epoch]}))
            sink.commit_epoch()
    assert fault.hits == 1
    assert content(place) == {1: {"id": 1, "c1": 1, "c2": None}, 2: {"id": 2, "c1": None, "c2": 2}}


def write_evolving(place: str, epochs: int) -> None:
    """Bring one more column with every epoch, and one that is wider each time."""
    settings = {"schema_evolution": True, "type_widening": True, "max_buffer_records": 1}
    widths = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    with TableSink(place, writer_id="w", **settings) as sink:
        for epoch in range(1, epochs + 1):
            sink.begin_epoch(epoch)
            value = pa.array([epoch], widths[min(epoch, 4) - 1])
            sink.write(pa.table({"id": [epoch * 10]}))
            sink.write(pa.table({"id": [epoch * 10 + 1], "v": value, f"c{epoch}": ["x"]}))
            sink.commit_epoch()


STEPS = (
    Step.SINK_STAGED,
    Step.COMMIT_PREPARED,
    Step.COMMIT_PUT,
    Step.COMMIT_CONFIRMED,
)


@kill_at(*STEPS)
def test_a_writer_killed_while_a_table_changes_leaves_old_or_new_and_goes_on(tmp_path, step):
    lakehand.create_table(tmp_path, SCHEMA, properties={"delta.columnMapping.mode": "name"})
    run_and_kill(step, write_evolving, str(tmp_path), 4, occurrence=3)
    between = content(tmp_path)
    done = len(between) // 2
    assert sorted(between) == [e * 10 + n for e in range(1, done + 1) for n in (0, 1)]
    assert [name for name in columns(tmp_path) if name.startswith("c")] == [
        f"c{epoch}" for epoch in range(1, done + 1)
    ]

    write_evolving(str(tmp_path), 4)

    found = content(tmp_path)
    assert [found[epoch * 10 + 1]["v"] for epoch in range(1, 5)] == [1, 2, 3, 4]
    assert [found[epoch * 10 + 1][f"c{epoch}"] for epoch in range(1, 5)] == ["x"] * 4


def test_many_writers_that_add_columns_at_once_lose_nothing(place):
    expected: dict[int, tuple[str, int]] = {}
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        chance = random.Random(writer)
        try:
            with TableSink(place, writer_id=f"w{writer}", schema_evolution=True) as sink:
                for epoch in range(6):
                    number, name = writer * 100 + epoch, f"c{chance.randrange(12)}"
                    expected[number] = (name, number)
                    sink.begin_epoch(epoch)
                    sink.write(pa.table({"id": [number], name: [number]}))
                    sink.commit_epoch()
        except BaseException as error:  # noqa: BLE001  told by the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    found = content(place)
    assert {number: found[number][name] for number, (name, _) in expected.items()} == {
        number: value for number, (_, value) in expected.items()
    }
    assert len(found) == 24


def test_an_overwrite_obeys_what_became_of_the_table_meanwhile(place):
    lakehand.open_table(place).append(pa.table({"id": [5]}))
    with TableSink(place, writer_id="w", write_mode="overwrite") as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [-1]}))
        sink.pre_commit()
        set_property(place, "delta.constraints.positive", "id > 0")
        with pytest.raises(ConstraintError, match="'positive'"):
            sink.commit_epoch()
        sink.rollback_epoch()
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [1]}))
        sink.pre_commit()
        other = lakehand.open_table(place)
        other.append(pa.table({"id": [7], "y": ["theirs"]}), schema_evolution=True)
        sink.commit_epoch()
    assert content(place) == {1: {"id": 1, "y": None}}


COLUMN_ID, HIGHEST_ID = "delta.columnMapping.id", "delta.columnMapping.maxColumnId"


def test_an_overwrite_that_adds_a_column_takes_nothing_back(place):
    with TableSink(place, writer_id="w", write_mode="overwrite", schema_evolution=True) as sink:
        sink.begin_epoch(1)
        sink.write(pa.table({"id": [1], "x": ["ours"]}))
        sink.pre_commit()
        # Somebody adds a column and drops it again: its id is used up, also in files.
        set_property(place, HIGHEST_ID, "2", description="golden")
        sink.commit_epoch()
    metadata = lakehand.open_table(place)._handle.head().native.metadata
    assert metadata.description == "golden"
    assert content(place) == {1: {"id": 1, "x": "ours"}}
    if metadata.configuration["delta.columnMapping.mode"] == "name":
        ids = [c["metadata"][COLUMN_ID] for c in json.loads(metadata.schema_string)["fields"]]
        assert (ids, metadata.configuration[HIGHEST_ID]) == ([1, 3], "3")


def test_upserted_rows_obey_constraints(place):
    table = lakehand.open_table(place)
    table.append(pa.table({"id": [1], "v": [1]}), schema_evolution=True)
    set_property(place, "delta.constraints.positive", "v > 0")
    table.upsert(pa.table({"id": [1, 2], "v": [5, 6]}), key=["id"])
    with pytest.raises(ConstraintError, match="'positive'"):
        table.upsert(pa.table({"id": [1], "v": [-1]}), key=["id"])
    assert {number: row["v"] for number, row in content(place).items()} == {1: 5, 2: 6}


def test_rows_that_waited_while_the_table_changed_are_held_against_it_once_more(place):
    fault = Fault(kind=FaultKind.FAIL_BEFORE, operation="close_writer", key="*.parquet")
    with TableSink(FaultStore(open_store(place), [fault])) as sink:
        sink.write(pa.table({"id": [1]}))
        with pytest.raises(StoreUnreachableError):
            sink.flush()
        sink.write(pa.table({"id": [-1]}))
        set_property(place, "delta.constraints.positive", "id > 0")
        with pytest.raises(ConstraintError, match="'positive'"):
            sink.flush()
        sink.rollback_epoch()
    assert sorted(content(place)) == [1]
