"""Files for a table: what they hold, where they lie and what a commit must know of them."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import CorruptFileError, RefusedError, SchemaMismatchError
from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.formats.delta.protocol.schema import MappingMode, StructField, StructType, parse_type
from lakehand.formats.delta.read.projection import relabel
from lakehand.formats.delta.write.context import WriteContext, output_directory
from lakehand.formats.delta.write.file_schema import file_schema
from lakehand.formats.delta.write.writer import write_files
from lakehand.formats.worker import WriteSpec
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.model.work import DataFile
from lakehand.parquet.footer_facts import read_facts
from lakehand.storage import open_store

SPEC = WriteSpec(target_file_bytes=2**20)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def context_of(store, schema, *, partition_by=(), configuration=None, features=()):
    struct = schema if isinstance(schema, StructType) else from_arrow(schema)
    return WriteContext(
        store=store,
        schema=struct,
        partition_columns=tuple(partition_by),
        configuration=configuration or {},
        writer_features=frozenset(features),
    )


def write(context, table, **options):
    return write_files(context, table.to_batches(), SPEC, **{"stem": "stem", **options})


def data_file(store, name, table, *, values=None, codec="snappy", key_values=None):
    """Put a Parquet file into the store, as another engine would have written it."""
    path = store.local_path(name)
    with pq.ParquetWriter(path, table.schema, compression=codec, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(key_values or {})
    return DataFile(
        path=name,
        bytes=path.stat().st_size,
        rows=table.num_rows,
        native={"add": {"partitionValues": values or {}}},
    )


def test_a_staged_file_tells_a_commit_all_it_needs(store):
    table = pa.table({"id": [1, 2], "day": ["x", "x"]})

    [file] = write(
        context_of(store, table.schema, partition_by=["day"]), table, partition_values={"day": "x"}
    )

    assert file.path == "day=x/stem-00000.zstd.parquet"
    assert (file.rows, file.bytes) == (2, store.head(file.path).bytes)
    assert file.native["partitionValues"] == {"day": "x"}
    assert json.loads(file.native["stats"])["maxValues"] == {"id": 2}


def test_partition_columns_are_left_out_of_files_unless_the_table_wants_them(store):
    table = pa.table({"day": ["x"], "id": [1]})
    plain = context_of(store, table.schema, partition_by=["day"])
    wanted = context_of(
        store, table.schema, partition_by=["day"], features=["materializePartitionColumns"]
    )

    names = [
        pq.read_schema(
            store.open_reader(write(c, table, partition_values={"day": "x"})[0].path)
        ).names
        for c in (plain, wanted)
    ]

    assert names == [["id"], ["day", "id"]]


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        ("2026-01-01 10:00:00", "p=2026-01-01 10%3A00%3A00"),
        ("a/b=c%", "p=a%2Fb%3Dc%25"),
        ("ü ", "p=ü "),
        ("", "p=__HIVE_DEFAULT_PARTITION__"),
        (None, "p=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_partition_directories_are_escaped_as_spark_does(store, value, directory):
    context = context_of(store, pa.schema({"p": pa.string(), "id": pa.int64()}), partition_by=["p"])

    assert output_directory(context, (), {"p": value}) == directory


def mapped(name: str, kind, number: int) -> StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c-{number}"}
    return StructField(name, parse_type(kind), metadata=metadata)


def test_mapped_columns_are_written_under_physical_names_with_ids(store):
    inner = mapped("inner", "integer", 3)
    outer = StructField("outer", StructType((inner,)), metadata=mapped("outer", "long", 2).metadata)
    schema = StructType((mapped("id", "long", 1), outer))
    context = context_of(store, schema, configuration={"delta.columnMapping.mode": "name"})
    table = pa.table({"id": [7], "outer": [{"inner": 8}]}).cast(
        pa.schema({"id": pa.int64(), "outer": pa.struct({"inner": pa.int32()})})
    )

    [file] = write(context, table)

    assert file.path == "stem-00000.zstd.parquet"
    parquet = pq.ParquetFile(store.open_reader(file.path))
    assert parquet.read().to_pylist() == [{"c-1": 7, "c-2": {"c-3": 8}}]
    assert "field_id=3 c-3" in str(parquet.schema)
    assert json.loads(file.native["stats"])["minValues"] == {"c-1": 7, "c-2": {"c-3": 8}}


def test_row_identity_goes_into_the_materialised_columns(store):
    configuration = {
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
    }
    context = context_of(store, pa.schema({"id": pa.int64()}), configuration=configuration)
    table = pa.table({"id": [1], ROW_ID: [40], ROW_VERSION: [3]})

    [file] = write(context, table)

    [row] = pq.read_table(store.open_reader(file.path)).to_pylist()
    assert row == {"id": 1, "_row-id-col-1": 40, "_row-commit-version-col-1": 3}
    assert json.loads(file.native["stats"])["nullCount"] == {"id": 0}


def test_row_identity_without_a_place_for_it_is_refused(store):
    table = pa.table({"id": [1], ROW_ID: [40], ROW_VERSION: [3]})

    with pytest.raises(SchemaMismatchError, match="materializedRowIdColumnName"):
        write(context_of(store, pa.schema({"id": pa.int64()})), table)


def test_every_column_is_optional_but_map_keys(store):
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("m", pa.map_(pa.string(), pa.field("v", pa.int32(), nullable=False))),
        ]
    )
    table = pa.table({"id": [1], "m": [[("k", 1)]]}, schema=schema)

    [file] = write(context_of(store, schema), table)

    text = str(pq.ParquetFile(store.open_reader(file.path)).schema)
    assert "optional int64 field_id=-1 id" in text
    assert "required binary field_id=-1 key" in text
    assert "optional int32 field_id=-1 value" in text


def test_codec_is_the_propertys_else_the_inputs_else_zstd(store):
    table = pa.table({"id": [1]})
    like = [
        data_file(store, "a", pa.table({"id": list(range(1000))}), codec="gzip"),
        data_file(store, "b", table, codec="snappy"),
    ]
    property_ = {"delta.parquet.compression.codec": "LZ4"}

    def codec(context, **options):
        [file] = write(context, table, **options)
        return next(iter(read_facts(store, file.path).codec_bytes))

    assert codec(context_of(store, table.schema)) == "ZSTD"
    assert codec(context_of(store, table.schema), like=like) == "GZIP"
    assert codec(context_of(store, table.schema, configuration=property_), like=like) == "LZ4_RAW"


def test_uncompressed_inputs_are_no_wish_for_more_of_them(store):
    table = pa.table({"id": [1]})
    like = [data_file(store, "a", table, codec="none")]

    [file] = write(context_of(store, table.schema), table, like=like)

    assert set(read_facts(store, file.path).codec_bytes) == {"ZSTD"}


def test_files_of_two_partitions_do_not_become_one(store):
    table = pa.table({"id": [1]})
    like = [data_file(store, name, table, values={"p": name}) for name in "ab"]
    context = context_of(store, pa.schema({"id": pa.int64(), "p": pa.string()}), partition_by=["p"])

    with pytest.raises(SchemaMismatchError, match="different partitions"):
        write(context, table, like=like)


def test_a_partition_must_be_said(store):
    context = context_of(store, pa.schema({"id": pa.int64(), "p": pa.string()}), partition_by=["p"])

    with pytest.raises(SchemaMismatchError, match="needed for"):
        write(context, pa.table({"id": [1], "p": ["a"]}))


def test_no_rows_make_no_file(store):
    schema = pa.schema({"id": pa.int64()})

    assert write(context_of(store, schema), schema.empty_table()) == ()


def test_void_members_are_left_out(store):
    schema = StructType(
        (
            StructField("id", parse_type("long")),
            StructField("nothing", parse_type("void")),
            StructField(
                "s",
                StructType(
                    (StructField("v", parse_type("void")), StructField("x", parse_type("long")))
                ),
            ),
        )
    )
    kind = pa.struct({"v": pa.null(), "x": pa.int64()})
    table = pa.table(
        {"id": [1, 2], "nothing": [None, None], "s": pa.array([{"v": None, "x": 5}, None], kind)}
    )

    [file] = write(context_of(store, schema), table)

    rows = pq.read_table(store.open_reader(file.path)).to_pylist()
    assert rows == [{"id": 1, "s": {"x": 5}}, {"id": 2, "s": None}]


def test_a_list_of_void_cannot_be_written():
    column = StructField("a", parse_type({"type": "array", "elementType": "void"}))

    with pytest.raises(RefusedError, match="void"):
        file_schema([column], mode=MappingMode.NONE)


def test_a_null_variant_keeps_its_parts_required(store):
    schema = StructType((StructField("v", parse_type("variant")),))
    kind = pa.struct({"metadata": pa.binary(), "value": pa.binary()})
    table = pa.table({"v": pa.array([{"metadata": b"m", "value": b"v"}, None], kind)})

    [file] = write(context_of(store, schema), table)

    parquet = pq.ParquetFile(store.open_reader(file.path))
    assert "required binary field_id=-1 value" in str(parquet.schema)
    assert parquet.read().to_pylist() == [{"v": {"metadata": b"m", "value": b"v"}}, {"v": None}]


def test_relabelling_moves_no_value_to_another_name():
    have = pa.record_batch({"a": pa.array([{"x": 1, "y": 2}])})
    want = pa.schema({"b": pa.struct({"y": pa.int64(), "x": pa.int64()})})

    assert relabel(have, want).to_pylist() == [{"b": {"y": 1, "x": 2}}]


def test_a_column_of_another_type_is_not_written():
    with pytest.raises(SchemaMismatchError, match="must be written as int64"):
        relabel(pa.record_batch({"a": pa.array([1], pa.int32())}), pa.schema({"a": pa.int64()}))


ANCIENT = pa.table({"d": [date(1500, 1, 1)]})
LEGACY = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
CORRECTED = {"org.apache.spark.version": "3.5.0"}


def calendar_inputs(store, *key_values):
    return [
        data_file(store, f"in-{number}", ANCIENT, key_values=values)
        for number, values in enumerate(key_values)
    ]


@pytest.mark.parametrize("markers", [LEGACY, CORRECTED, {}])
def test_calendar_markers_that_all_inputs_share_are_kept(store, markers):
    like = calendar_inputs(store, markers, markers)

    [file] = write(context_of(store, ANCIENT.schema), ANCIENT, like=like)

    assert read_facts(store, file.path).key_values == markers


@pytest.mark.parametrize(
    "rows",
    [
        ANCIENT,
        pa.table({"d": [[date(1500, 1, 1)]]}),
        pa.table({"d": [{"m": datetime(1850, 1, 1, tzinfo=UTC)}]}),
        pa.table({"d": pa.array([[("k", date(1500, 1, 1))]], pa.map_(pa.string(), pa.date32()))}),
    ],
)
def test_ancient_values_of_mixed_calendars_are_refused(store, rows):
    like = calendar_inputs(store, LEGACY, CORRECTED)
    schema = pa.schema(
        [
            f.with_type(pa.struct({"m": pa.timestamp("us", tz="UTC")}))
            if pa.types.is_struct(f.type)
            else f
            for f in rows.schema
        ]
    )

    with pytest.raises(RefusedError, match="calendar"):
        write(context_of(store, schema), rows.cast(schema), like=like)


def test_modern_values_may_come_from_mixed_calendars(store):
    modern = pa.table({"d": [date(1600, 1, 1), None]})

    [file] = write(
        context_of(store, modern.schema), modern, like=calendar_inputs(store, LEGACY, CORRECTED, {})
    )

    assert read_facts(store, file.path).key_values == CORRECTED


def test_a_broken_input_is_named(store):
    store.put("broken", b"no parquet at all, but long enough")
    like = [DataFile(path="broken", bytes=1, rows=1, native={"add": {"partitionValues": {}}})]

    with pytest.raises(CorruptFileError, match="broken"):
        write(context_of(store, ANCIENT.schema), ANCIENT, like=like)


def test_what_a_task_needs_can_be_sent_to_it(store):
    context = context_of(store, pa.schema({"id": pa.int64()}), partition_by=[])

    assert pickle.loads(pickle.dumps(context)).schema == context.schema
