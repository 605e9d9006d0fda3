from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.parquet.calendar import calendar_class
from lakehand.parquet.copyable import copy_class, merged_created_by, merged_key_values, refusal
from lakehand.parquet.footer import ChunkField, FileField, Footer, chunks, read_footer
from lakehand.parquet.thrift import BINARY, I64
from lakehand.storage import open_store

SPARK_3 = {"org.apache.spark.version": "3.5.0"}
LEGACY = {
    "org.apache.spark.version": "3.5.0",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.timeZone": "America/Los_Angeles",
}


@pytest.fixture
def footer_of(tmp_path):
    store = open_store(tmp_path)

    def make(table: pa.Table, **options) -> Footer:
        pq.write_table(table, tmp_path / "f.parquet", store_schema=False, **options)
        return read_footer(store, "f.parquet")

    return make


def _with(footer: Footer, field_id: int, value) -> Footer:
    meta = {**footer.meta, field_id: value}
    return Footer(path=footer.path, file_bytes=footer.file_bytes, meta=meta)


def _created_by(footer: Footer, name: str) -> Footer:
    return _with(footer, FileField.CREATED_BY, (BINARY, name.encode()))


def _marked(footer: Footer, pairs: dict[str, str]) -> Footer:
    structs = [{1: (BINARY, k.encode()), 2: (BINARY, v.encode())} for k, v in pairs.items()]
    return _with(footer, FileField.KEY_VALUES, (9, (12, structs)))


def test_equal_schemas_and_codecs_are_one_class(footer_of):
    one = footer_of(pa.table({"a": [1, 2], "s": ["x", None]}))
    two = footer_of(pa.table({"a": [7], "s": ["y"]}))
    assert refusal(one) is None
    assert copy_class(one) == copy_class(two)


@pytest.mark.parametrize(
    "field",
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.int64()),
        pa.field("a", pa.int64(), nullable=False),
        pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "4"}),
    ],
    ids=["type", "name", "required", "field id"],
)
def test_pages_that_mean_something_else_are_another_class(footer_of, field):
    base = footer_of(pa.table({"a": pa.array([1], pa.int64())}))
    other = footer_of(pa.table([pa.array([1], field.type)], schema=pa.schema([field])))
    assert copy_class(other) != copy_class(base)


def test_another_codec_is_another_class(footer_of):
    rows = pa.table({"a": [1]})
    assert copy_class(footer_of(rows)) != copy_class(footer_of(rows, compression="zstd"))


@pytest.mark.parametrize(
    ("created_by", "is_copyable"),
    [
        ("parquet-mr version 1.12.3 (build f8dced182c4c1fbdec6ccb3185537b5a01e6ed6b)", True),
        ("parquet-mr version 1.10.1-databricks3 (build bd2ebdd4)", True),
        ("parquet-mr version 1.8.1 (build 4aba4dae)", False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("DuckDB version v2.0.0 (build abc)", True),
        ("delta-rs version py-1.6.6", True),
        ("parquet-mr version unknown", False),
        ("impala", False),
        ("", False),
    ],
)
def test_writers_with_known_faults_are_not_copied(footer_of, created_by, is_copyable):
    footer = _created_by(footer_of(pa.table({"a": [1]})), created_by)
    assert (refusal(footer) is None) == is_copyable


def test_unknown_footer_fields_fail_closed(footer_of):
    footer = _with(footer_of(pa.table({"a": [1]})), 12, (I64, 3))
    assert "file field 12" in refusal(footer)


def test_a_chunk_beyond_the_end_of_the_file_is_refused(footer_of):
    footer = footer_of(pa.table({"a": [1]}))
    cut = Footer(path=footer.path, file_bytes=10, meta=footer.meta)
    assert refusal(cut) == "a column chunk is outside the file"


def test_a_chunk_in_another_file_is_refused(footer_of):
    footer = footer_of(pa.table({"a": [1]}))
    chunks(footer.row_groups[0])[0][ChunkField.FILE_PATH] = (BINARY, b"elsewhere.parquet")
    assert refusal(footer) == "a column chunk is in another file"


def test_ancient_dates_keep_files_of_two_calendars_apart(footer_of):
    ancient = footer_of(pa.table({"d": [date(1000, 1, 1)]}))
    assert copy_class(_marked(ancient, SPARK_3)) != copy_class(_marked(ancient, LEGACY))


def test_modern_dates_and_instants_have_no_calendar(footer_of):
    rows = pa.table(
        {"d": [date(1990, 1, 1), None], "t": [None, datetime(1950, 1, 1, tzinfo=UTC)]},
    )
    modern = footer_of(rows)
    assert copy_class(_marked(modern, SPARK_3)) == copy_class(_marked(modern, LEGACY))


def test_times_without_zone_have_no_calendar(footer_of):
    ancient = footer_of(pa.table({"t": pa.array([datetime(1000, 1, 1)], pa.timestamp("us"))}))  # noqa: DTZ001
    assert copy_class(_marked(ancient, SPARK_3)) == copy_class(_marked(ancient, LEGACY))


def test_markers_travel_with_ancient_values_and_keys_that_differ_are_dropped(footer_of):
    ancient = footer_of(pa.table({"d": [date(1000, 1, 1)]}))
    one = _marked(ancient, {**LEGACY, "shared": "x", "own": "1", "geo": "{}"})
    two = _marked(ancient, {**LEGACY, "shared": "x", "own": "2", "geo": "{}"})
    merged = merged_key_values([one, two])
    assert {key: merged[key] for key in LEGACY} == LEGACY
    assert merged.keys() - LEGACY.keys() == {"shared", "original.created.by"}


def test_the_newest_spark_version_stands_for_modern_values(footer_of):
    modern = footer_of(pa.table({"d": [date(2020, 1, 1)]}))
    newer = _marked(modern, {"org.apache.spark.version": "4.0.0"})
    merged = merged_key_values([_marked(modern, LEGACY), newer])
    assert merged["org.apache.spark.version"] == "4.0.0"
    assert "org.apache.spark.legacyDateTime" not in merged


def test_the_name_of_parquet_mr_is_kept_only_if_all_inputs_have_it(footer_of):
    arrow = footer_of(pa.table({"a": [1]}))
    spark = _created_by(arrow, "parquet-mr version 1.16.0 (build x)")
    ours = "lakehand version 0.1.0 (build x)"
    assert merged_created_by([spark, spark], writer=ours) == f"parquet-mr compatible {ours}"
    assert merged_created_by([spark, arrow], writer=ours) == ours


@pytest.mark.parametrize(
    ("pairs", "datetime_", "int96"),
    [
        ({}, "unknown", "unknown"),
        ({"org.apache.spark.version": "2.4.8"}, "legacy", "legacy"),
        ({"org.apache.spark.version": "3.0.1"}, "corrected", "legacy"),
        (SPARK_3, "corrected", "corrected"),
        (LEGACY, "legacy", "corrected"),
    ],
)
def test_the_calendar_follows_version_and_markers(pairs, datetime_, int96):
    found = calendar_class(pairs)
    assert (found.datetime, found.int96) == (datetime_, int96)
