"""Rows of data files as rows of the table, whatever schema the files were written under."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lakehand.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    PredicateError,
    RefusedError,
    SchemaMismatchError,
    UnknownColumnError,
    ValidationError,
)
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.worker import NativeRewriteWorker
from lakehand.model.snapshot import ROW_ID, ROW_VERSION
from lakehand.model.work import StagedFile
from support.reading import array, column, fresh_store, map_of, put_file, read, struct, worker_of


@pytest.fixture
def store():
    return fresh_store()


def test_columns_come_by_name_whatever_their_order_and_case_in_the_file(store):
    file = put_file(store, {"Gone": [1, 2], "NAME": ["a", "b"], "id": pa.array([1, 2], pa.int64())})
    worker = worker_of(store, column("id", "long"), column("name", "string"), column("new", "date"))

    assert read(worker, file).to_pylist() == [
        {"id": 1, "name": "a", "new": None},
        {"id": 2, "name": "b", "new": None},
    ]
    assert read(worker, file).schema == worker.schema


def test_only_the_columns_asked_for_are_handed_out_in_the_order_asked_for(store):
    file = put_file(store, {"id": pa.array([1], pa.int64()), "name": ["a"]})
    worker = worker_of(store, column("id", "long"), column("name", "string"))

    assert read(worker, file, columns=["NAME", "id"]).to_pydict() == {"name": ["a"], "id": [1]}
    with pytest.raises(UnknownColumnError, match="the columns are: id, name"):
        read(worker, file, columns=["nmae"])
    with pytest.raises(ValidationError, match="no column is asked for"):
        read(worker, file, columns=[])


def mapped_worker(store, mode):
    inner = struct(column("x", "integer", id_=3, physical="p3"))
    return worker_of(
        store,
        column("id", "long", id_=1, physical="p1"),
        column("many", array(inner), id_=2, physical="p2"),
        column("by", map_of("string", inner), id_=4, physical="p4"),
        columnMapping__mode=mode,
    )


def mapped_rows(names, *, with_ids=True):
    def field(name, type_, id_):
        return pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)} if with_ids else None)

    inner = pa.struct([field("stray", pa.int32(), 99), field(names[2], pa.int32(), 3)])
    schema = pa.schema(
        [
            field(names[1], pa.list_(inner), 2),
            field(names[0], pa.int64(), 1),
            field(names[3], pa.map_(pa.string(), inner), 4),
        ]
    )
    value = {"stray": 0, names[2]: 5}
    row = {names[0]: 7, names[1]: [value, None], names[3]: [("k", value)]}
    return pa.Table.from_pylist([row], schema=schema)


MAPPED_ROW = {"id": 7, "many": [{"x": 5}, None], "by": [("k", {"x": 5})]}


def test_mapped_columns_are_found_by_their_physical_names_at_every_depth(store):
    file = put_file(store, mapped_rows(["p1", "p2", "p3", "p4"], with_ids=False))
    assert read(mapped_worker(store, "name"), file).to_pylist() == [MAPPED_ROW]


def test_columns_mapped_by_id_are_found_by_nothing_else(store):
    renamed = put_file(store, mapped_rows(["any", "other", "names", "at all"]))
    assert read(mapped_worker(store, "id"), renamed).to_pylist() == [MAPPED_ROW]

    bare = put_file(store, mapped_rows(["p1", "p2", "p3", "p4"], with_ids=False), name="bare")
    with pytest.raises(SchemaMismatchError, match=r"bare does not fit.*no field ids"):
        read(mapped_worker(store, "id"), bare)


UTC_NINE = dt.datetime(2026, 1, 1, 9, 0, 0, 123456, tzinfo=dt.UTC)
NINE = UTC_NINE.replace(tzinfo=None)

WIDENINGS = [
    ("byte", "short", pa.int8(), 7, 7),
    ("byte", "long", pa.int8(), -7, -7),
    ("short", "integer", pa.int16(), 7, 7),
    ("integer", "long", pa.int32(), 7, 7),
    ("float", "double", pa.float32(), 0.5, 0.5),
    ("byte", "double", pa.int8(), 7, 7.0),
    ("short", "double", pa.int16(), 7, 7.0),
    ("integer", "double", pa.int32(), 7, 7.0),
    ("date", "timestamp_ntz", pa.date32(), NINE.date(), NINE.replace(hour=0, microsecond=0)),
    ("decimal(5,2)", "decimal(7,2)", pa.decimal128(5, 2), Decimal("1.25"), Decimal("1.25")),
    ("decimal(5,2)", "decimal(9,4)", pa.decimal128(5, 2), Decimal("1.25"), Decimal("1.2500")),
    ("integer", "decimal(10,0)", pa.int32(), -7, Decimal(-7)),
    ("byte", "decimal(11,1)", pa.int8(), 7, Decimal("7.0")),
    ("long", "decimal(22,2)", pa.int64(), 2**62, Decimal(2**62).quantize(Decimal("0.01"))),
]


@pytest.mark.parametrize(("was", "now", "stored", "value", "seen"), WIDENINGS)
def test_values_of_a_narrower_type_are_widened(store, was, now, stored, value, seen):
    file = put_file(store, {"v": pa.array([value, None], stored)})
    rows = read(worker_of(store, column("v", now)), file)
    assert rows["v"].to_pylist() == [seen, None]


@pytest.mark.parametrize(
    ("now", "stored"),
    [
        ("integer", pa.int64()),
        ("float", pa.float64()),
        ("double", pa.int64()),
        ("decimal(9,0)", pa.int32()),
        ("decimal(19,0)", pa.int64()),
        ("decimal(5,2)", pa.decimal128(7, 2)),
        ("decimal(7,1)", pa.decimal128(5, 2)),
        ("decimal(6,3)", pa.decimal128(5, 1)),
        ("timestamp", pa.date32()),
        ("timestamp_ntz", pa.timestamp("us", tz="UTC")),
        ("date", pa.timestamp("us")),
        ("string", pa.int32()),
        ("long", pa.uint64()),
        ("boolean", pa.int32()),
        (array("long"), pa.int64()),
        (struct(column("x", "long")), pa.int64()),
    ],
)
def test_any_other_change_of_type_is_refused(store, now, stored):
    file = put_file(store, {"v": pa.nulls(1, stored)})
    with pytest.raises(SchemaMismatchError, match=r"part.parquet does not fit.*column 'v'"):
        read(worker_of(store, column("v", now)), file)


@pytest.mark.parametrize(
    ("stored", "options"),
    [
        (pa.timestamp("us", tz="UTC"), {}),
        (pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}),
        (pa.timestamp("us"), {}),
        (pa.timestamp("us", tz="Europe/Paris"), {"store_schema": True}),
    ],
)
def test_times_are_instants_to_the_microsecond(store, stored, options):
    moments = [UTC_NINE, dt.datetime(1, 1, 1, tzinfo=dt.UTC)]
    values = pa.array(moments, pa.timestamp("us", tz="UTC")).view(stored)
    file = put_file(store, {"at": values}, **options)

    rows = read(worker_of(store, column("at", "timestamp")), file)
    assert rows["at"].to_pylist() == moments
    assert rows.schema.field("at").type == pa.timestamp("us", tz="UTC")


def test_times_of_other_units_become_microseconds(store):
    worker = worker_of(store, column("at", "timestamp_ntz"))
    before = dt.datetime.fromisoformat("1969-12-31T23:59:59.999999")
    millis = put_file(
        store, {"at": pa.array([NINE], pa.timestamp("us")).cast("timestamp[ms]", safe=False)}
    )
    nanos = put_file(store, {"at": pa.array([-1], pa.int64()).view("timestamp[ns]")}, name="nanos")

    found = read(worker, millis, nanos)["at"].to_pylist()
    assert found == [NINE.replace(microsecond=123000), before]


def test_integers_that_claim_too_narrow_a_type_are_refused_by_value(store):
    worker = worker_of(store, column("v", "byte"))
    fits = put_file(store, {"v": pa.array([7], pa.int32())})
    assert read(worker, fits)["v"].to_pylist() == [7]

    file = put_file(store, {"v": pa.array([300], pa.int32())})
    with pytest.raises(CorruptFileError, match="does not fit its column"):
        read(worker, file)


@pytest.mark.parametrize("as_integer", [True, False])
def test_decimals_are_read_in_every_physical_form(store, as_integer):
    columns = [column(f"d{p}", f"decimal({p},2)") for p in (9, 18, 38)]
    values = [Decimal("-1.25"), None, Decimal("3.10")]
    file = put_file(
        store,
        {f"d{p}": pa.array(values, pa.decimal128(p, 2)) for p in (9, 18, 38)},
        store_decimal_as_integer=as_integer,
    )
    rows = read(worker_of(store, *columns), file)
    assert all(rows[name].to_pylist() == values for name in rows.schema.names)


def test_text_and_bytes_stand_in_for_each_other_without_loss(store):
    stored = {"t": pa.array([b"\xffraw"]), "b": pa.array(["text"])}
    file = put_file(store, stored)
    rows = read(worker_of(store, column("t", "string"), column("b", "binary")), file)

    assert rows["t"].combine_chunks().cast(pa.binary()).to_pylist() == [b"\xffraw"]
    assert rows["b"].to_pylist() == [b"text"]


def test_layouts_that_only_arrow_knows_are_read(store):
    stored = {
        "t": pa.array(["a", "b"]).dictionary_encode(),
        "u": pa.array(["a", None], pa.large_string()),
        "l": pa.array([[1], [2]], pa.large_list(pa.int32())),
        "f": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    }
    columns = [column("t", "string"), column("u", "string")]
    columns += [column("l", array("integer")), column("f", array("integer"))]
    file = put_file(store, stored, store_schema=True)

    rows = read(worker_of(store, *columns), file)
    assert rows.to_pydict() == {name: values.to_pylist() for name, values in stored.items()}
    assert rows.schema == worker_of(store, *columns).schema


def test_a_struct_without_any_known_member_keeps_its_nulls(store):
    file = put_file(store, {"s": [{"old": 1}, None], "id": pa.array([1, 2], pa.int64())})
    worker = worker_of(store, column("s", struct(column("new", "long"))), column("id", "long"))
    assert read(worker, file)["s"].to_pylist() == [{"new": None}, None]


def test_nested_values_survive_slicing_and_filtering(store):
    inner = struct(column("k", "string"), column("v", array("long")))
    rows = [{"id": i, "s": [{"v": [i], "k": str(i)}] if i % 3 else None} for i in range(5000)]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.list_(pa.struct([("v", pa.list_(pa.int64())), ("k", pa.string())]))),
        ]
    )
    file = put_file(store, pa.Table.from_pylist(rows, schema=schema), row_group_size=1500)
    worker = worker_of(store, column("id", "long"), column("s", array(inner)))

    found = read(worker, file, where="id >= 2990 AND id < 3010 AND id % 2 = 0")
    found.validate(full=True)
    assert found.to_pylist() == [
        row for row in rows if 2990 <= row["id"] < 3010 and not row["id"] % 2
    ]


def test_values_of_the_log_win_over_partition_columns_in_files(store):
    worker = worker_of(
        store,
        column("id", "long"),
        column("day", "date"),
        column("p", "string", id_=3, physical="phys"),
        partition_by=["day", "p"],
        columnMapping__mode="name",
    )
    values = {"day": "2026-01-02", "phys": ""}
    stored = {"id": pa.array([1], pa.int64()), "day": pa.array([0], pa.date32())}
    file = put_file(store, stored, add={"partitionValues": values})

    assert read(worker, file).to_pylist() == [{"id": 1, "day": dt.date(2026, 1, 2), "p": None}]
    assert read(worker, file, columns=["day"]).num_rows == 1
    assert read(worker, file, where="day = '2026-01-03'").num_rows == 0


def test_void_columns_are_null(store):
    worker = worker_of(store, column("id", "long"), column("nothing", "void"))
    file = put_file(store, {"id": pa.array([1], pa.int64()), "nothing": [5]})
    assert read(worker, file).to_pylist() == [{"id": 1, "nothing": None}]


def test_variants_are_read_as_their_two_parts(store):
    worker = worker_of(store, column("v", "variant"))
    whole = put_file(store, {"v": [{"value": b"\x00", "metadata": b"\x01"}, None]})
    assert read(worker, whole)["v"].to_pylist() == [{"metadata": b"\x01", "value": b"\x00"}, None]


SHREDDED_UNSIGNED = pa.struct([("metadata", pa.binary()), ("typed_value", pa.uint64())])


def test_shredded_variants_are_read_as_if_they_were_not(store):
    worker = worker_of(store, column("v", "variant"))
    shredded = put_file(
        store,
        {
            "v": [
                {"metadata": b"\x01\x00\x00", "value": None, "typed_value": 1},
                {"metadata": b"\x01\x00\x00", "value": b"\x00", "typed_value": None},
                None,
            ]
        },
    )
    values = [b"\x0c\x01", b"\x00"]
    expected = [{"metadata": b"\x01\x00\x00", "value": value} for value in values]
    assert read(worker, shredded)["v"].to_pylist() == [*expected, None]


def test_shredded_variants_of_a_type_that_variants_lack_are_refused_by_name(store):
    typed = pa.array([{"metadata": b"\x01\x00\x00", "typed_value": 1}], SHREDDED_UNSIGNED)
    with pytest.raises(RefusedError, match="variant 'v' as uint64") as caught:
        read(worker_of(store, column("v", "variant")), put_file(store, {"v": typed}))
    assert caught.value.attributes["feature"] == "variantShredding"


def test_deleted_rows_are_counted_over_all_row_groups(store):
    deleted = [0, 99, 100, 250, 299]
    descriptor = write_deletion_vectors(store, [BitMap64(deleted)])[0]
    add = {"deletionVector": descriptor.to_json()}
    ids = pa.array(range(300), pa.int64())
    file = put_file(store, {"id": ids}, add=add, row_group_size=100)
    worker = worker_of(store, column("id", "long"))

    assert read(worker, file)["id"].to_pylist() == [i for i in range(300) if i not in deleted]
    assert read(worker, file, where="id >= 250")["id"].to_pylist() == list(range(251, 299))


def test_a_deletion_vector_of_another_file_is_refused(store):
    descriptor = write_deletion_vectors(store, [BitMap64([3])])[0]
    add = {"deletionVector": descriptor.to_json()}
    file = put_file(store, {"id": pa.array([1, 2, 3], pa.int64())}, add=add)
    with pytest.raises(CorruptFileError, match="deletes row 3 of a file with 3 rows"):
        read(worker_of(store, column("id", "long")), file)


def tracked_worker(store):
    return worker_of(
        store,
        column("id", "long"),
        enableRowTracking="true",
        rowTracking__materializedRowIdColumnName="_row-id",
        rowTracking__materializedRowCommitVersionColumnName="_row-version",
    )


def test_rows_are_identified_by_position_and_by_what_the_file_says(store):
    stored = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "_row-id": pa.array([None, 70, None], pa.int64()),
    }
    descriptor = write_deletion_vectors(store, [BitMap64([0])])[0]
    add = {"baseRowId": 10, "defaultRowCommitVersion": 4, "deletionVector": descriptor.to_json()}
    file = put_file(store, stored, add=add)

    rows = read(tracked_worker(store), file, row_identity=True)
    assert rows.to_pydict() == {"id": [2, 3], ROW_ID: [70, 12], ROW_VERSION: [4, 4]}
    assert tracked_worker(store).tracks_rows


def test_positions_run_on_over_the_batches_of_a_row_group(store, monkeypatch):
    monkeypatch.setattr("lakehand.parquet.row_group_reader._MIN_BATCH_ROWS", 64)
    monkeypatch.setattr("lakehand.parquet.row_group_reader._MAX_BATCH_ROWS", 64)
    deleted = [5, 63, 64, 200, 999]
    descriptor = write_deletion_vectors(store, [BitMap64(deleted)])[0]
    add = {"baseRowId": 0, "defaultRowCommitVersion": 1, "deletionVector": descriptor.to_json()}
    file = put_file(store, {"id": pa.array(range(1000), pa.int64())}, add=add, row_group_size=300)

    rows = read(tracked_worker(store), file, row_identity=True)
    assert rows["id"].to_pylist() == [i for i in range(1000) if i not in deleted]
    assert rows[ROW_ID] == rows["id"]


def test_staged_files_are_identified_by_what_they_hold(store):
    stored = {
        "id": pa.array([1], pa.int64()),
        "_row-id": pa.array([70], pa.int64()),
        "_row-version": pa.array([3], pa.int64()),
    }
    file = put_file(store, stored)
    staged = StagedFile(path=file.path, bytes=file.bytes, rows=1, native={"partitionValues": {}})

    rows = tracked_worker(store).read_staged([staged], row_identity=True).read_all()
    assert rows.to_pydict() == {"id": [1], ROW_ID: [70], ROW_VERSION: [3]}


def test_many_files_keep_their_order(store):
    files = [
        put_file(store, {"id": pa.array([n], pa.int64())}, name=f"{n}.parquet") for n in range(40)
    ]
    worker = pickle.loads(pickle.dumps(worker_of(store, column("id", "long"))))
    assert read(worker, *files)["id"].to_pylist() == list(range(40))


def test_a_missing_file_is_named_and_never_an_empty_result(store):
    file = put_file(store, {"id": pa.array([1], pa.int64())}, name="lost.parquet")
    store.delete([file.path])
    with pytest.raises(ObjectNotFoundError, match=r"lost.parquet is missing") as caught:
        read(worker_of(store, column("id", "long")), file)
    assert caught.value.path == "lost.parquet"


@pytest.mark.parametrize("damage", [lambda b: b[:50], lambda b: b"", lambda b: b[:-1] + b"X"])
def test_a_damaged_footer_is_refused(store, damage):
    file = put_file(store, {"id": pa.array(range(1000), pa.int64())})
    store.put(file.path, damage(store.get(file.path)))
    with pytest.raises(CorruptFileError, match=r"part.parquet cannot be read"):
        read(worker_of(store, column("id", "long")), file)


def test_a_damaged_page_is_refused(store):
    file = put_file(
        store,
        {"id": pa.array(range(1000), pa.int64())},
        write_page_checksum=True,
        use_dictionary=False,
    )
    content = bytearray(store.get(file.path))
    content[200] ^= 0xFF
    store.put(file.path, bytes(content))
    with pytest.raises(CorruptFileError, match=r"part.parquet cannot be read"):
        read(worker_of(store, column("id", "long")), file)


def test_a_table_without_columns_has_no_rows_to_read(store):
    with pytest.raises(SchemaMismatchError, match="has no columns"):
        read(worker_of(store))


def test_two_columns_that_differ_by_case_only_are_refused(store):
    file = put_file(store, {"ID": [1], "Id": [2]})
    with pytest.raises(SchemaMismatchError, match="several columns named 'id'"):
        read(worker_of(store, column("id", "long")), file)


def test_legacy_shapes_of_lists_and_maps_are_read(store):
    rows = pa.table(
        {"l": [[1, None], []], "m": pa.array([[("a", 1)], None], pa.map_("string", "int32"))}
    )
    file = put_file(
        store,
        rows.cast(pa.schema([("l", pa.list_(pa.int32())), rows.schema.field("m")])),
        use_compliant_nested_type=False,
    )
    worker = worker_of(
        store, column("l", array("integer")), column("m", map_of("string", "integer"))
    )
    assert "item" in str(pq.read_schema(pa.BufferReader(store.get(file.path))))
    assert read(worker, file).to_pydict() == rows.to_pydict()


def test_unsigned_and_fixed_width_values_are_read_where_they_fit(store):
    stored = {"u": pa.array([200], pa.uint8()), "f": pa.array([b"abcd"], pa.binary(4))}
    worker = worker_of(store, column("u", "short"), column("f", "binary"))
    assert read(worker, put_file(store, stored)).to_pylist() == [{"u": 200, "f": b"abcd"}]


def test_half_a_variant_is_refused(store):
    file = put_file(store, {"v": [{"value": b"\x00", "other": b"\x01"}]})
    with pytest.raises(SchemaMismatchError, match="without both parts of a variant"):
        read(worker_of(store, column("v", "variant")), file)


def test_a_struct_without_members_keeps_its_nulls(store):
    file = put_file(store, {"s": [{"x": 1}, None]})
    assert read(worker_of(store, column("s", struct())), file)["s"].to_pylist() == [{}, None]


def test_visible_rows_are_counted_without_reading_them(store):
    descriptor = write_deletion_vectors(store, [BitMap64([1])])[0]
    add = {"deletionVector": descriptor.to_json()}
    file = put_file(store, {"id": pa.array(range(10), pa.int64())}, add=add)
    counted = worker_of(store, column("id", "long")).count_rows([replace(file, deleted_rows=1)])
    assert counted == 9


def test_delta_does_not_rewrite_groups_itself(store):
    assert not isinstance(worker_of(store, column("id", "long")), NativeRewriteWorker)


def test_text_that_is_no_utf8_is_handed_out_and_cannot_be_compared(store):
    file = put_file(store, {"t": pa.array([b"\xff\xfe", b"ok"])}, row_group_size=1)
    worker = worker_of(store, column("t", "string"))
    assert read(worker, file).num_rows == 2
    with pytest.raises(PredicateError, match="cannot be evaluated"):
        read(worker, file, where="upper(t) = 'OK'")
