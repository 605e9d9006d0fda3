"""DuckDB and Arrow read the same rows, and DuckDB reads nothing that it would misunderstand."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.formats.delta.protocol.arrow_types import from_arrow
from lakehand.formats.delta.read import scanner
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.delta.worker import DeltaWorker
from lakehand.formats.delta.write.context import WriteContext
from lakehand.formats.rows import PlacedColumns
from lakehand.formats.worker import NotDecodable, TaskLimits
from lakehand.model.work import StagedFile
from lakehand.parquet.footer import MAGIC
from lakehand.parquet.thrift import decode, encode
from lakehand.prove.digest import Digester, digest
from lakehand.storage import open_store
from support.golden import ABSENT_REASON, GOLDEN, golden_store, open_golden, read_names
from support.reading import array, column, fresh_store, map_of, put_file, struct, worker_of

LIMITS = TaskLimits(threads=2)


def rows_and_digest(worker, files, decoder="duckdb"):
    with Digester(worker.moved_rows) as digester:
        batches = list(worker.read_digested(files, digester, limits=LIMITS, decoder=decoder))
        return pa.Table.from_batches(batches, worker.moved_rows), digester.result()


def assert_decoders_agree(worker, files):
    rows, seen_by_duckdb = rows_and_digest(worker, files)
    _, seen_by_arrow = rows_and_digest(worker, files, "arrow")
    assert seen_by_duckdb == seen_by_arrow
    assert seen_by_duckdb == digest(rows.to_batches(), rows.schema)
    return rows


@pytest.fixture
def without_arrow(monkeypatch):
    """Make a test fail that leaves rows to Arrow."""

    def refuse(*_):
        raise AssertionError("read by Arrow")

    monkeypatch.setattr(scanner, "read_rows", refuse)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=ABSENT_REASON)
@pytest.mark.parametrize("name", read_names())
def test_decoders_agree_on_golden_tables(name):
    table, snapshot = DeltaTable(golden_store(name)), open_golden(name).snapshot
    files = table.data_files(snapshot, range(snapshot.file_count))
    assert_decoders_agree(table.worker(snapshot), files)


SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.binary(),
        "d": pa.decimal128(9, 2),
        "wide": pa.decimal128(38, 10),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "clock": pa.timestamp("us"),
        "list": pa.list_(pa.list_(pa.float32())),
        "struct": pa.struct({"x": pa.int8(), "inner": pa.struct({"y": pa.string()})}),
        "map": pa.map_(pa.string(), pa.struct({"z": pa.int64()})),
    }
)
# Arrow knows times outside of Python's years, and both decoders must keep them.
MICROSECONDS = st.integers(-(2**60), 2**60)
FLOATS = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1.5])
VALUES = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "f": FLOATS,
    "s": st.text(max_size=5),
    "b": st.binary(max_size=5),
    "d": st.decimals(-9999999, 9999999, places=2),
    "wide": st.decimals(-(10**20), 10**20, places=10),
    "day": st.dates(),
    "at": MICROSECONDS,
    "clock": MICROSECONDS,
    "list": st.lists(st.none() | st.lists(st.none() | FLOATS, max_size=2), max_size=2),
    "struct": st.fixed_dictionaries(
        {
            "x": st.none() | st.integers(-128, 127),
            "inner": st.none() | st.fixed_dictionaries({"y": st.none() | st.text(max_size=2)}),
        }
    ),
    "map": st.dictionaries(
        st.text(max_size=2),
        st.none() | st.fixed_dictionaries({"z": st.none() | st.integers(0, 9)}),
        max_size=2,
    ).map(lambda entries: list(entries.items())),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=20,
)


def table_worker(store, schema):
    context = WriteContext(
        store=store,
        schema=from_arrow(schema),
        partition_columns=(),
        configuration={},
        writer_features=frozenset(),
    )
    return DeltaWorker(store=store, context=context)


def assert_decoders_agree_on(rows):
    store = fresh_store()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    file = put_file(store, table)

    found = assert_decoders_agree(table_worker(store, SCHEMA), [file])

    assert digest(found.to_batches(), SCHEMA) == digest(table.to_batches(), SCHEMA)


@settings(max_examples=15, deadline=None)
@given(rows=ROWS)
def test_decoders_agree_on_any_rows(rows):
    assert_decoders_agree_on(rows)


@pytest.mark.soak
@settings(max_examples=500, deadline=None)
@given(rows=ROWS)
def test_decoders_agree_on_very_many_rows(rows):
    assert_decoders_agree_on(rows)


def test_plain_files_are_read_by_duckdb_and_in_their_order(store, without_arrow):
    files = [
        put_file(store, {"a": [n, n + 1], "s": ["x", None]}, name=f"{9 - n}.parquet")
        for n in range(4)
    ]
    rows, _ = rows_and_digest(worker_of(store, column("a", "long"), column("s", "string")), files)
    assert rows["a"].to_pylist() == [0, 1, 1, 2, 2, 3, 3, 4]


def test_remote_files_are_read_by_duckdb_from_scratch_that_is_left_empty(tmp_path, without_arrow):
    store = fresh_store()
    file = put_file(store, {"a": [1, 2]})
    worker = worker_of(store, column("a", "long"))
    limits = TaskLimits(scratch_directory=str(tmp_path))
    with Digester(worker.moved_rows) as digester:
        assert len(list(worker.read_digested([file], digester, limits=limits))) == 1
    assert list(tmp_path.iterdir()) == []


def test_remote_files_are_fetched_ahead_and_deleted_after_use(tmp_path, without_arrow):
    store = fresh_store()
    files = [put_file(store, {"a": [n]}, name=f"{n}.parquet") for n in range(9)]
    worker = worker_of(store, column("a", "long"))
    # Half of the scratch is for inputs: two portions of two files each.
    limits = TaskLimits(scratch_directory=str(tmp_path), scratch_bytes=9 * files[0].bytes)

    with Digester(worker.moved_rows) as digester:
        rows, copies = [], []
        for batch in worker.read_digested(files, digester, limits=limits):
            rows += batch.column(0).to_pylist()
            copies.append(len(list(tmp_path.rglob("inputs/*"))))

    assert rows == list(range(9))
    assert max(copies) <= 4
    assert list(tmp_path.iterdir()) == []


def test_remote_files_beyond_the_scratch_are_streamed():
    store = fresh_store()
    file = put_file(store, {"a": list(range(1000))})
    worker = worker_of(store, column("a", "long"))
    with Digester(worker.moved_rows) as digester:
        limits = TaskLimits(scratch_bytes=16)
        rows = list(worker.read_digested([file], digester, limits=limits))
        assert sum(batch.num_rows for batch in rows) == digester.result().rows == 1000


def test_a_path_with_wildcards_is_one_file(tmp_path, without_arrow):
    store = open_store(tmp_path / "a[1]*")
    file = put_file(store, {"a": [1]})
    rows, _ = rows_and_digest(worker_of(store, column("a", "long")), [file])
    assert rows.num_rows == 1


def test_what_files_do_not_hold_comes_from_the_log(store, without_arrow):
    day = {"partitionValues": {"day": "2024-02-29"}}
    files = [
        put_file(store, {"a": [1, 2]}, name="1.parquet", add=day),
        put_file(store, {"a": [3]}, name="2.parquet", add={"partitionValues": {"day": None}}),
    ]
    new = struct(column("x", "integer"))
    columns = [column("a", "long"), column("day", "date"), column("new", new)]
    rows = assert_digests(worker_of(store, *columns, partition_by=["day"]), files)
    leap_day = dt.date(2024, 2, 29)
    assert rows["day"].to_pylist() == [leap_day, leap_day, None]
    assert rows["new"].to_pylist() == [None] * 3


def assert_digests(worker, files):
    rows, found = rows_and_digest(worker, files)
    assert found == digest(worker.read(files, row_identity=worker.tracks_rows), worker.moved_rows)
    return rows


def test_deleted_rows_and_ids_belong_to_their_files(store, without_arrow):
    [second] = write_deletion_vectors(store, [BitMap64([0, 2])])
    adds = [{"baseRowId": 10}, {"baseRowId": 20, "deletionVector": second.to_json()}]
    files = [
        put_file(store, {"a": [n, n + 1, n + 2]}, name=f"{9 - n}.parquet", add=add)
        for n, add in enumerate(adds)
    ]
    worker = worker_of(store, column("a", "long"), enableRowTracking="true")

    rows = assert_digests(worker, files)

    assert rows["a"].to_pylist() == [0, 1, 2, 2]
    assert rows.column(1).to_pylist() == [10, 11, 12, 21]


def test_columns_are_widened(store, without_arrow):
    old = {
        "i": pa.array([1, None], pa.int16()),
        "f": pa.array([0.5, -0.0], pa.float32()),
        "d": pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)),
    }
    files = [put_file(store, old, store_decimal_as_integer=True)]
    types = {"i": "long", "f": "double", "d": "decimal(20,3)"}
    rows = assert_digests(worker_of(store, *(column(*pair) for pair in types.items())), files)
    assert rows["d"].to_pylist() == [Decimal("1.500"), None]


def test_old_timestamps_are_instants(store, without_arrow):
    times = pa.table({"t": pa.array([-1, 0, 10**15], pa.timestamp("us"))})
    file = put_file(store, times, use_deprecated_int96_timestamps=True)
    rows = assert_digests(worker_of(store, column("t", "timestamp")), [file])
    assert rows["t"].cast(pa.int64()).to_pylist() == [-1, 0, 10**15]


def test_renamed_columns_are_found_by_their_physical_names(store, without_arrow):
    inner = struct(column("x", "long", id_=2, physical="col-2"))
    file = put_file(store, {"col-1": [{"col-2": 5}, None]})
    worker = worker_of(
        store, column("s", inner, id_=1, physical="col-1"), columnMapping__mode="name"
    )
    assert assert_digests(worker, [file])["s"].to_pylist() == [{"x": 5}, None]


def test_members_in_another_order_are_left_to_arrow(store):
    kind = struct(column("x", "long"), column("y", "long"))
    file = put_file(store, {"s": [{"y": 1, "x": 2}]})
    rows = assert_decoders_agree(worker_of(store, column("s", kind)), [file])
    assert rows["s"].to_pylist() == [{"x": 2, "y": 1}]


def test_a_decimal_that_duckdb_takes_for_an_integer_is_left_to_arrow(store):
    amounts = {"d": pa.array([Decimal("1.23")], pa.decimal128(10, 2))}
    file = put_file(store, amounts, store_decimal_as_integer=True)
    data = store.get(file.path)
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[-8 - length : -8])
    del footer[2][1][1][1][6]  # converted_type of the only column
    changed = encode(footer)
    tail = changed + len(changed).to_bytes(4, "little") + MAGIC
    data = data[: -8 - length] + tail
    store.put(file.path, data)
    file = replace(file, bytes=len(data))

    rows = assert_decoders_agree(worker_of(store, column("d", "decimal(12,2)")), [file])

    assert rows["d"].to_pylist() == [Decimal("1.23")]


def test_a_flipped_bit_is_found_by_its_checksum(store):
    file = put_file(
        store,
        {"s": [f"value {n}" for n in range(100)]},
        write_page_checksum=True,
        use_dictionary=False,
        compression="none",
    )
    data = bytearray(store.get(file.path))
    data[data.index(b"value 50")] ^= 1
    store.put(file.path, bytes(data))
    worker = worker_of(store, column("s", "string"))
    with pytest.raises(NotDecodable, match="checksum"):
        rows_and_digest(worker, [file])
    with pytest.raises(CorruptFileError, match=file.path):
        rows_and_digest(worker, [file], "arrow")


def test_text_that_is_no_utf8_is_told_to_be_read_by_arrow(store):
    table = pa.table({"s": pa.array([b"\xff\xfe"])}).cast(pa.schema({"s": pa.string()}), safe=False)
    file = put_file(store, table)
    worker = worker_of(store, column("s", "string"))
    with pytest.raises(NotDecodable):
        rows_and_digest(worker, [file])
    assert rows_and_digest(worker, [file], "arrow")[1].rows == 1


def test_files_read_back_have_the_digest_of_their_rows(store, without_arrow):
    file = put_file(store, {"a": [1, 2, 3], "l": [[1], [], None]})
    worker = worker_of(store, column("a", "long"), column("l", array("long")))
    staged = StagedFile(path=file.path, bytes=file.bytes, rows=3, native={"partitionValues": {}})
    with Digester(worker.moved_rows) as digester:
        worker.digest_staged([staged], digester, limits=LIMITS)
    assert digester.result() == rows_and_digest(worker, [file])[1]


def test_maps_keep_their_entries(store, without_arrow):
    table = pa.table({"m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64()))})
    worker = worker_of(store, column("m", map_of("string", "long")))
    rows = assert_digests(worker, [put_file(store, table)])
    assert rows["m"].to_pylist() == [[("k", 1)], [], None]
    assert pq.read_schema(store.local_path("part.parquet")).names == ["m"]


def test_files_that_ask_for_other_layouts_in_memory_are_read_by_duckdb(store, without_arrow):
    kinds = {
        "view": pa.string_view(),
        "large": pa.large_string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "bytes": pa.binary_view(),
        "list": pa.large_list(pa.string_view()),
    }
    values = {"bytes": [b"x", None], "list": [["x", None], None]}
    arrays = {n: pa.array(values.get(n, ["x", None]), kind) for n, kind in kinds.items()}
    texts = [column(name, "string") for name in ("view", "large", "word")]
    worker = worker_of(store, *texts, column("bytes", "binary"), column("list", array("string")))

    rows, _ = rows_and_digest(worker, [put_file(store, pa.table(arrays), store_schema=True)])

    assert rows.to_pylist()[0] == dict.fromkeys(kinds, "x") | {"bytes": b"x", "list": ["x", None]}
    assert rows.to_pylist()[1] == dict.fromkeys(kinds)


def test_rows_keep_their_order_beside_values_of_the_log_and_deleted_rows(store, without_arrow):
    # DuckDB works on 2,048 rows at a time, and a join holds back the few that are left over.
    [vector] = write_deletion_vectors(store, [BitMap64([7])])
    files = [
        put_file(
            store,
            {"a": range(2080 * n, 2080 * (n + 1))},
            name=f"{n}.parquet",
            add={"partitionValues": {"p": "x"}, "deletionVector": vector.to_json()},
        )
        for n in range(6)
    ]
    worker = worker_of(store, column("a", "long"), column("p", "string"), partition_by=["p"])

    rows, _ = rows_and_digest(worker, files)

    assert rows["a"].to_pylist() == [n for n in range(6 * 2080) if n % 2080 != 7]
    assert rows["p"].unique().to_pylist() == ["x"]


def test_rows_of_long_texts_come_few_at_a_time(store, without_arrow):
    """A file tells the size of encoded values: a text that is there often takes next to nothing."""
    texts = [str(n) * 1_500 for n in range(8)]
    rows = {"id": range(30_000), "text": [texts[n % 8] for n in range(30_000)]}
    worker = worker_of(store, column("id", "long"), column("text", "string"))
    files = [put_file(store, rows)]

    for names, most in ((("id", "text"), 8 * 1024), (("id",), 30_000)):
        wanted = PlacedColumns(columns=names)
        batches = list(worker.read_placed(files, wanted, limits=LIMITS))
        assert sum(batch.num_rows for batch in batches) == 30_000
        assert max(batch.num_rows for batch in batches) <= most
        assert len(batches) < 30_000 / most + 3
