"""A table takes on what its rows bring along, in the commit of these rows, and only if asked to."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import RefusedError, SchemaMismatchError, ValidationError
from lakehand.sink import TableSink

SCHEMA = pa.schema([("id", pa.int32()), ("part", pa.string())])


@pytest.fixture(params=["none", "name", "id"])
def place(tmp_path, request):
    """Return a table that finds columns by their names, by names of its own, or by ids."""
    properties = {"delta.columnMapping.mode": request.param}
    lakehand.create_table(tmp_path / "t", SCHEMA, properties=properties).append(rows([0]))
    return tmp_path / "t"


@pytest.fixture
def plain(tmp_path):
    lakehand.create_table(tmp_path / "t", SCHEMA, partition_by=["part"]).append(rows([0]))
    return tmp_path / "t"


def rows(ids: list[int], **columns: Any) -> pa.Table:
    parts = [f"p{number % 2}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int32()), "part": parts, **columns})


def content(place: Any) -> list[dict[str, Any]]:
    found = lakehand.open_table(place).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def metadata(place: Any) -> Any:
    return lakehand.open_table(place)._handle.head().native.metadata


def version(place: Any) -> int:
    return lakehand.open_table(place).snapshot().version


def test_schema_evolution_disabled_shows_the_difference_and_changes_nothing(plain):
    wrong = pa.table({"id": pa.array([1], pa.int64()), "part": [1], "more": ["x"]})
    with pytest.raises(SchemaMismatchError) as refused:
        lakehand.open_table(plain).append(wrong)
    assert refused.value.kind == "incompatible"
    assert len(refused.value.difference) == 3
    assert version(plain) == 1
    assert len(list(plain.glob("**/*.parquet"))) == 1


def test_schema_evolution_add_nullable_column(place):
    lakehand.open_table(place).append(rows([1], more=[1.5]), schema_evolution=True)
    assert version(place) == 2
    assert content(place) == [
        {"id": 0, "part": "p0", "more": None},
        {"id": 1, "part": "p1", "more": 1.5},
    ]


def test_new_members_at_any_depth_are_null_in_older_rows(place):
    table = lakehand.open_table(place)
    table.append(rows([1], s=[{"a": 1}], items=[[{"a": 1}]]), schema_evolution=True)
    deeper = [[{"a": 2, "b": {"c": "x"}}]]
    table.append(rows([2], s=[{"a": 2, "b": [True]}], items=deeper), schema_evolution=True)
    _, one, two = content(place)
    assert (one["s"], one["items"]) == ({"a": 1, "b": None}, [{"a": 1, "b": None}])
    assert (two["s"], two["items"]) == ({"a": 2, "b": [True]}, deeper[0])


def test_new_columns_of_mapped_tables_get_ids_that_no_column_ever_had(place):
    table = lakehand.open_table(place)
    for name in ("x", "y"):
        table.append(rows([1], **{name: [{"a": 1}]}), schema_evolution=True)
    found = metadata(place)
    if found.configuration.get("delta.columnMapping.mode") == "none":
        assert "columnMapping" not in found.schema_string
        return
    fields = json.loads(found.schema_string)["fields"]
    inner = [field["type"]["fields"][0] for field in fields if isinstance(field["type"], dict)]
    ids = [field["metadata"]["delta.columnMapping.id"] for field in (*fields, *inner)]
    names = [field["metadata"]["delta.columnMapping.physicalName"] for field in (*fields, *inner)]
    assert sorted(ids) == [1, 2, 3, 4, 5, 6]
    assert len(set(names)) == 6
    assert found.configuration["delta.columnMapping.maxColumnId"] == "6"


def test_a_sink_takes_on_a_column_in_the_middle_of_an_epoch(place):
    with TableSink(place, writer_id="w", schema_evolution=True, max_buffer_records=1) as sink:
        sink.begin_epoch(1)
        sink.write(rows([1]))
        sink.write(rows([2], more=["x"]))
        sink.write(rows([3]))
        sink.commit_epoch()
        sink.begin_epoch(2)
        sink.write(rows([4], more=["y"], other=[1]))
        sink.commit_epoch()
        sink.begin_epoch(3)
        sink.write(rows([5], more=["z"], other=[2]))
        sink.commit_epoch()
    commits = sorted((place / "_delta_log").glob("*.json"))
    assert ['"metaData"' in commit.read_text() for commit in commits] == [
        True, False, True, True, False,
    ]  # fmt: skip
    assert [(row["id"], row["more"], row["other"]) for row in content(place)] == [
        (0, None, None), (1, None, None), (2, "x", None), (3, None, None), (4, "y", 1),
        (5, "z", 2),
    ]  # fmt: skip


def test_a_sink_at_least_once_takes_on_columns_too(place):
    settings = {"max_buffer_records": 1, "on_backpressure": "wait"}
    with TableSink(place, schema_evolution=True, **settings) as sink:
        for number in range(1, 6):
            sink.write(rows([number], **{f"c{number}": [number]}))
    assert [row[f"c{row['id']}"] for row in content(place)[1:]] == [1, 2, 3, 4, 5]


def test_columns_of_an_epoch_that_is_given_up_are_given_up(place):
    with TableSink(place, writer_id="w", schema_evolution=True) as sink:
        sink.begin_epoch(1)
        sink.write(rows([1], more=["x"]))
        sink.pre_commit()
        sink.rollback_epoch()
        sink.begin_epoch(1)
        sink.write(rows([1]))
        sink.commit_epoch()
    assert content(place)[1] == {"id": 1, "part": "p1"}


def test_an_overwrite_takes_on_columns_too(plain):
    table = lakehand.open_table(plain)
    table.append(rows([1]))
    table.overwrite(rows([3], more=["x"]), where="part = 'p1'", schema_evolution=True)
    assert [(row["id"], row["more"]) for row in content(plain)] == [(0, None), (3, "x")]
    table.overwrite(rows([5], less=["y"]), schema_evolution=True)
    assert content(plain) == [{"id": 5, "part": "p1", "more": None, "less": "y"}]


def test_type_widening_needs_a_switch_of_its_own(plain):
    wider = pa.table({"id": [2**40], "part": ["p"]})
    table = lakehand.open_table(plain)
    with pytest.raises(SchemaMismatchError, match="id' is int64") as refused:
        table.append(wider, schema_evolution=True)
    assert refused.value.kind == "type widening"
    with pytest.raises(ValidationError, match="schema_evolution"):
        table.append(wider, type_widening=True)
    table.append(wider, schema_evolution=True, type_widening=True)
    assert [row["id"] for row in content(plain)] == [0, 2**40]
    protocol = table._handle.head().native.protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ("typeWidening",)
    assert set(protocol.writer_features) == {"appendOnly", "invariants", "typeWidening"}


def test_widening_a_table_for_the_oldest_writers_lists_what_its_columns_need(tmp_path):
    """A column that is never null is an invariant, which delta-spark wants to see listed."""
    lakehand.create_table(tmp_path / "t", pa.schema([pa.field("id", pa.int32(), nullable=False)]))
    first = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    text = first.read_text()
    assert '"minWriterVersion":2' in text
    first.write_text(text.replace('"minWriterVersion":2', '"minWriterVersion":1'))

    table = lakehand.open_table(tmp_path / "t")
    table.append(pa.table({"id": [2**40]}), schema_evolution=True, type_widening=True)

    listed = table._handle.head().native.protocol.writer_features
    assert set(listed) == {"appendOnly", "invariants", "typeWidening"}


def test_types_are_widened_again_and_again_and_every_change_is_kept(place):
    table = lakehand.open_table(place)
    steps = [pa.decimal128(4, 1), pa.decimal128(6, 1), pa.decimal128(8, 3)]
    for number, type_ in enumerate(steps, start=1):
        value = pa.array([Decimal("1.5")]).cast(type_)
        table.append(rows([number], price=value), schema_evolution=True, type_widening=True)
    assert [row["price"] for row in content(place)[1:]] == [Decimal("1.500")] * 3
    [changes] = [
        field["metadata"]["delta.typeChanges"]
        for field in json.loads(metadata(place).schema_string)["fields"]
        if field["name"] == "price"
    ]
    assert [change["toType"] for change in changes] == ["decimal(6,1)", "decimal(8,3)"]
    assert table.compact(min_files=2, engine="local").files_removed >= 3
    assert [row["price"] for row in content(place)[1:]] == [Decimal("1.500")] * 3


def test_columns_on_which_others_depend_are_not_widened(tmp_path):
    schema = pa.schema([("id", pa.int32()), ("part", pa.int32())])
    table = lakehand.create_table(tmp_path / "t", schema, partition_by=["part"])
    wider = pa.table({"id": pa.array([1], pa.int32()), "part": [1]})
    with pytest.raises(SchemaMismatchError, match="others of its parts depend"):
        table.append(wider, schema_evolution=True, type_widening=True)


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (pa.nulls(1), SchemaMismatchError, "has no type: it is all null"),
        (pa.array([1], pa.uint64()), SchemaMismatchError, "no type for Arrow's uint64"),
        (pa.array([0], pa.timestamp("us")), RefusedError, "timestampNtz"),
    ],
)
def test_columns_that_a_table_cannot_take_on_are_refused(plain, column, error, message):
    with pytest.raises(error, match=message):
        lakehand.open_table(plain).append(rows([1], more=column), schema_evolution=True)
    assert version(plain) == 1


def test_a_name_that_the_table_cannot_have_is_refused(plain):
    with pytest.raises(ValidationError, match="does not allow in names"):
        lakehand.open_table(plain).append(rows([1], **{"a b": [1]}), schema_evolution=True)


@pytest.mark.parametrize("options", [{"pipeline": "p"}, {"write_mode": "upsert"}])
def test_where_others_commit_for_a_sink_evolution_is_refused_by_name(plain, options):
    with pytest.raises(RefusedError, match="schema_evolution"):
        TableSink(plain, writer_id="w", schema_evolution=True, **options)
