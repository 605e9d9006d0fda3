"""Tables that are legal, or nearly so, and that once were read wrongly or blocked a verb."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyroaring import BitMap64

from lakehand import open_table
from lakehand.errors import SchemaMismatchError
from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.scan import scan
from lakehand.formats.worker import NotCopyable
from lakehand.observe.clock import ManualClock
from lakehand.rewrite.prepare import Request, make_plan, prepare
from lakehand.runs import Run, sweep
from lakehand.settings import Settings
from lakehand.storage import Store, open_store
from lakehand.storage.fault_injection import CountingStore
from support.hand_written_logs import add, field, metadata, new_log, protocol, put_commit

DOUBLE_ONCE_FLOAT = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}


def put_file(store: Store, path: str, rows: pa.Table, **members: Any) -> dict[str, Any]:
    """Write a data file and return its add; statistics are those given and no others."""
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    store.put(path, sink.getvalue())
    return add(path, size=len(sink.getvalue()), rows=rows.num_rows, **members)


def bounds(**values: Any) -> str:
    """Return statistics of a file whose columns each hold one value."""
    nothing = dict.fromkeys(values, 0)
    return json.dumps(
        {"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": nothing}
    )


def read(store: Store, where: str | None = None) -> list[dict[str, Any]]:
    return scan(DeltaTable(store), where=where).read_all().to_pylist()


def test_names_that_only_case_folding_makes_equal_are_two_columns():
    columns = field("id", "long"), field("strasse", "string"), field("straße", "string")
    store = new_log([protocol(), metadata(*columns, partition_by=["straße"])])
    rows = pa.table({"id": [1], "strasse": ["kept"]})
    put_commit(store, 1, put_file(store, "a", rows, partitionValues={"straße": "x"}))

    assert read(store) == [{"id": 1, "strasse": "kept", "straße": "x"}]


def test_a_missing_column_is_not_filled_from_one_that_case_folding_makes_equal():
    store = new_log([protocol(), metadata(field("straße", "string"), field("strasse", "string"))])
    put_commit(store, 1, put_file(store, "a", pa.table({"straße": ["x"]})))

    assert read(store) == [{"straße": "x", "strasse": None}]


@pytest.mark.parametrize("where", ["`a.b` = 5", "a.b = 100", "`a.b` = 5 AND a.b = 100"])
def test_a_name_with_a_dot_and_a_member_of_a_struct_have_bounds_of_their_own(where):
    struct = {"type": "struct", "fields": [field("b", "long")]}
    store = new_log([protocol(), metadata(field("a.b", "long"), field("a", struct))])
    rows = pa.table({"a.b": [5], "a": [{"b": 100}]})
    stats = bounds(**{"a.b": 5, "a": {"b": 100}})
    put_commit(store, 1, put_file(store, "a", rows, stats=stats))

    assert len(read(store, where)) == 1


@pytest.mark.parametrize(
    ("value", "where"), [(0.7, "x < 0.7"), (0.1, "x BETWEEN 0.1000000001 AND 0.2")]
)
def test_bounds_of_a_float_that_became_a_double_lose_no_file(value, where):
    column = field("x", "double", **DOUBLE_ONCE_FLOAT)
    store = new_log([protocol(reader=["typeWidening"]), metadata(column)])
    rows = pa.table({"x": pa.array([value], pa.float32())})
    put_commit(store, 1, put_file(store, "a", rows, stats=bounds(x=value)))

    assert len(read(store, where)) == 1


def test_decimals_whose_bounds_delta_rs_rounds_to_doubles_are_found(tmp_path):
    values = [Decimal("12345678901234567890.12"), Decimal("12345678901234567890.99")]
    write_deltalake(tmp_path, pa.table({"d": pa.array(values, pa.decimal128(38, 2))}))

    for value in values:
        assert open_table(tmp_path).to_arrow(where=f"d = {value}").num_rows == 1


def test_a_file_that_is_live_with_two_deletion_vectors_is_read_with_each():
    store = new_log([protocol(reader=["deletionVectors"]), metadata()])
    first, second = write_deletion_vectors(store, [BitMap64([0]), BitMap64([1])])
    rows = pa.table({"id": [1, 2, 3]})
    put_commit(store, 1, put_file(store, "a", rows, deletionVector=first.to_json()))
    put_commit(store, 2, put_file(store, "a", rows, deletionVector=second.to_json()))

    assert sorted(row["id"] for row in read(store)) == [1, 2, 3, 3]


def test_members_without_ids_are_refused_where_ids_alone_name_columns():
    def mapped(name, type_, number):
        key = "delta.columnMapping"
        return field(name, type_, **{f"{key}.id": number, f"{key}.physicalName": f"c{number}"})

    struct = {"type": "struct", "fields": [mapped("x", "long", 2)]}
    properties = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}
    head = metadata(mapped("s", struct, 1), properties=properties)
    store = new_log([protocol(reader=["columnMapping"]), head])
    stored = pa.field("c1", pa.struct({"c2": pa.int64()}), metadata={"PARQUET:field_id": "1"})
    put_commit(store, 1, put_file(store, "a", pa.table([[{"c2": 7}]], schema=pa.schema([stored]))))

    with pytest.raises(SchemaMismatchError, match="column 's' of the file has no field ids"):
        read(store)


def test_strings_that_are_no_text_are_compacted_without_bounds(tmp_path):
    store = open_store(tmp_path)
    put_commit(store, 0, protocol(), metadata(field("s", "string")))
    texts = pa.array([b"\xff\xfe", b"text"], pa.binary()).view(pa.string())
    put_commit(store, 1, *(put_file(store, name, pa.table({"s": texts})) for name in "abc"))

    open_table(tmp_path, engine="local").compact(min_files=2)

    assert open_table(tmp_path).snapshot().file_count == 1
    values = open_table(tmp_path).to_arrow()["s"].combine_chunks().view(pa.binary())
    assert sorted(values.to_pylist()) == [b"text"] * 3 + [b"\xff\xfe"] * 3


def test_a_partition_column_that_is_spelled_in_another_case_is_compacted(tmp_path):
    store = open_store(tmp_path)
    columns = field("id", "long"), field("p", "string")
    put_commit(store, 0, protocol(), metadata(*columns, partition_by=["P"]))
    values = {"partitionValues": {"p": "x"}}
    files = [put_file(store, name, pa.table({"id": [1]}), **values) for name in "abc"]
    put_commit(store, 1, *files)

    open_table(tmp_path, engine="local").compact(min_files=2)

    assert open_table(tmp_path).to_arrow().to_pylist() == [{"id": 1, "p": "x"}] * 3


def test_a_run_whose_commit_nobody_can_look_up_any_more_does_not_block_the_next_one():
    clock = ManualClock()
    store = new_log([protocol(), metadata()], [add("a")], [add("b")])
    Run.start(store, {"groups": []}, clock=clock).decide_fate([], base_version=0)
    write_checkpoint(store, clock=clock)
    store.delete([commit_key(0), commit_key(1)])
    clock.advance(30 * 24 * 3600)

    assert len(sweep(DeltaTable(store), clock=clock).dropped) == 1


def test_a_checkpoint_with_characters_that_end_a_line_elsewhere_is_whole():
    head = metadata(properties={"delta.checkpointPolicy": "v2"})
    store = new_log([protocol(reader=["v2Checkpoint"]), head], [add("a")])
    top, *_ = write_checkpoint(store, clock=ManualClock()).keys
    lines = [json.loads(line) for line in store.get(top).splitlines()]
    lines[-1]["metaData"]["description"] = "one\u2028two"
    store.put(top, "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode())
    store.delete([commit_key(0)])

    assert DeltaTable(store).snapshot().file_count == 1
    assert not write_checkpoint(store, clock=ManualClock()).is_new


def test_files_without_rows_are_not_copied_into_a_file_without_rows():
    store = new_log([protocol(), metadata()])
    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema([("id", pa.int64())])).close()
    store.put("a", sink.getvalue())
    put_commit(store, 1, add("a", size=len(sink.getvalue()), rows=0))
    table = DeltaTable(store)
    snapshot = table.snapshot()
    copier = table.worker(snapshot).copier()

    with (
        pytest.raises(NotCopyable, match="has no rows"),
        copier.copy(table.data_files(snapshot, [0]), target_file_bytes=2**20, stem="b"),
    ):
        pass


def test_a_plan_of_many_groups_looks_into_the_log_as_often_as_a_plan_of_one():
    def requests_of_plan(partitions: int) -> int:
        head = metadata(field("id", "long"), field("p", "string"), partition_by=["p"])
        files = [
            add(f"{name}{number}", partitionValues={"p": str(number)})
            for number in range(partitions)
            for name in "ab"
        ]
        store = CountingStore(new_log([protocol(), head], files))
        settings = Settings({"min_files": 2, "max_surveyed_files": 0})
        work = prepare(make_plan(DeltaTable(store), settings, Request()))
        assert len(work.groups) == partitions
        return sum(store.requests.values())

    assert requests_of_plan(20) == requests_of_plan(1)
