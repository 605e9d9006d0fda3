"""Options in the spellings that users bring along from other systems."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.settings import SETTINGS, Settings
from lakehand.sink import TableSink

#: Each spelling with a value, the setting, and its value.
SPELLINGS = [
    ("target_file_size_mb", 512, "target_file_bytes", 512_000_000),
    ("compact_target_file_size_mb", "0.5", "target_file_bytes", 500_000),
    ("target.file.size", 1000, "target_file_bytes", 1000),
    ("min_file_size_mb", 64, "small_file_bytes", 64_000_000),
    ("compact_threshold_mb", 100, "small_file_bytes", 100_000_000),
    ("compact_threshold_files", 12, "automatic_min_files", 12),
    ("min_files_for_compaction", 3, "min_files", 3),
    ("minFilesForCompaction", 3, "min_files", 3),
    ("compaction.min-files", 3, "min_files", 3),
    ("auto_compact", False, "auto_compact", False),
    ("compaction.enabled", "false", "auto_compact", False),
    ("z_order_enabled", False, "auto_cluster", False),
    ("compaction.z-order.columns", "a, b", "cluster_by", ("a", "b")),
    ("check_interval_commits", 5, "maintenance_commits", 5),
    ("compaction.check-interval.ms", 1000, "maintenance_interval", timedelta(seconds=1)),
    ("retentionHours", 200, "retention", timedelta(hours=200)),
    ("vacuum.retention.hours", 200, "retention", timedelta(hours=200)),
    ("verifyIntegrity", True, "prove", "digest"),
    ("verifyIntegrity", "true", "prove", "digest"),
    ("cluster_curve", "z-order", "cluster_curve", "zorder"),
    ("parquet.compression", "zstd", "codec", "zstd"),
    ("parquet.compression.level", 3, "compression_level", 3),
    ("parquet.dictionary", False, "dictionary_encoding", False),
    ("parquet.statistics", "chunk", "parquet_statistics", "chunk"),
    ("parquet.bloom.columns", "id", "bloom_columns", ("id",)),
    ("parquet.bloom.fpp", 0.05, "bloom_fpp", 0.05),
    ("parquet.max.row.group.size", 7, "row_group_rows", 7),
    ("max.buffer.duration.ms", 500, "max_buffer_age", timedelta(milliseconds=500)),
    ("merge.key.columns", "id", "merge_key", ("id",)),
]


@pytest.mark.parametrize(("spelling", "given", "name", "value"), SPELLINGS)
def test_a_spelling_sets_its_setting(spelling, given, name, value):
    assert getattr(Settings({spelling: given}, environment={}), name) == value
    assert getattr(Settings({spelling.upper(): given}, environment={}), name) == value


def test_no_two_settings_share_a_spelling():
    spellings = [one.lower() for setting in SETTINGS for one in set(setting.spellings)]
    assert len(spellings) == len(set(spellings))


NUMBERS_AND_NAMES = [one for one in SETTINGS if not isinstance(one.default, bool)]


@pytest.mark.parametrize("setting", NUMBERS_AND_NAMES, ids=lambda setting: setting.name)
@pytest.mark.parametrize("value", [True, False])
def test_a_setting_that_is_not_boolean_refuses_booleans(setting, value):
    for spelling in setting.spellings:
        if (spelling, value) != ("verifyIntegrity", True):
            with pytest.raises(ValidationError):
                Settings({spelling: value}, environment={})


def test_a_small_file_size_above_the_target_does_not_make_every_file_small():
    from lakehand.planning.policy import CompactionPolicy

    settings = Settings({"target_file_size_mb": 100, "min_file_size_mb": 64}, environment={})
    assert CompactionPolicy.from_settings(settings).small_file_bytes == 64_000_000
    settings = Settings({"target_file_size_mb": 100, "min_file_size_mb": 500}, environment={})
    assert CompactionPolicy.from_settings(settings).small_file_bytes == 90_000_000


def test_storage_options_may_be_dotted(tmp_path, monkeypatch):
    asked = []

    def open_store(uri, options=None, **others):
        asked.append(options)
        return real(uri, **others)

    from lakehand.catalogs import resolve

    real = resolve.open_store
    monkeypatch.setattr(resolve, "open_store", open_store)
    dotted = {"storage.region": "eu", "storage.timeout": 5}
    schema = pa.schema({"id": pa.int64()})
    lakehand.create_table(tmp_path / "t", schema, storage_options={"a": "b"}, **dotted)
    lakehand.open_table(tmp_path / "t", **dotted)
    TableSink(tmp_path / "t", **dotted)
    assert asked == [
        {"a": "b", "region": "eu", "timeout": "5"},
        {"region": "eu", "timeout": "5"},
        {"region": "eu", "timeout": "5"},
    ]


def test_a_curve_may_be_spelled_as_z_order(tmp_path):
    path = tmp_path / "t"
    table = lakehand.create_table(path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    table.append(pa.table({"a": [1], "b": [2]}), sink_maintenance=False)
    assert table.plan(by="a,b", curve="z-order").curve == "zorder"
