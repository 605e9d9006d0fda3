"""Settings of new files hold for every verb that writes some, not only for sinks."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import lakehand
from support.compactions import tasks_inline
from support.copyable_tables import append_file, create
from support.small_tables import make_table, rows


def live_files(table: lakehand.Table) -> list[pq.FileMetaData]:
    root = table.url.removeprefix("file://")
    paths = table.snapshot().files["path"].to_pylist()
    return [pq.ParquetFile(f"{root}/{path}").metadata for path in paths]


def codecs(table: lakehand.Table) -> set[str]:
    return {file.row_group(0).column(0).compression for file in live_files(table)}


@pytest.fixture
def copyable(tmp_path):
    """A table whose row groups are worth moving as they are."""
    table = create(tmp_path / "copyable", rows(0, 1).schema)
    for number in range(4):
        append_file(table, rows(number * 100_000, 100_000))
    return tmp_path / "copyable"


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4", "none"])
def test_compact_writes_the_codec_that_is_asked_for(tmp_path, codec):
    table = lakehand.open_table(make_table(tmp_path / "t"), codec=codec)
    with tasks_inline():
        assert table.compact().outcome == "committed"
    expected = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert {found.removesuffix("_RAW") for found in codecs(table)} == {expected}


def test_the_codec_of_the_environment_holds_for_compact(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHAND_CODEC", "gzip")
    table = lakehand.open_table(make_table(tmp_path / "t"))
    with tasks_inline():
        table.compact()
    assert codecs(table) == {"GZIP"}


@pytest.mark.parametrize(("codec", "method"), [("snappy", "copy"), ("zstd", "recode")])
def test_row_groups_of_another_codec_are_not_moved(copyable, codec, method):
    table = lakehand.open_table(copyable, codec=codec)
    with tasks_inline():
        report = table.compact()
    assert getattr(report.methods, method) == 1
    assert codecs(table) == {codec.upper()}


def test_row_groups_without_the_bloom_filters_asked_for_are_not_moved(copyable):
    table = lakehand.open_table(copyable)
    with tasks_inline():
        assert table.compact(bloom_columns=["id"]).methods.recode == 1
    [file] = live_files(table)
    assert file.row_group(0).column(0).bloom_filter_offset is not None


@pytest.mark.parametrize("verb", ["upsert", "delete", "deduplicate", "append"])
def test_verbs_of_rows_write_the_codec_that_is_asked_for(tmp_path, verb):
    table = lakehand.open_table(make_table(tmp_path / "t", commits=1), codec="gzip")
    old = set(table.snapshot().files["path"].to_pylist())
    new = rows(0, 4)
    actions = {
        "upsert": lambda: table.upsert(new, key=["id"]),
        "delete": lambda: table.delete(where="id % 3 = 1"),
        "deduplicate": lambda: table.deduplicate(key=["region"]),
        "append": lambda: table.append(new),
    }
    actions[verb]()
    written = [p for p in table.snapshot().files["path"].to_pylist() if p not in old]
    root = tmp_path / "t"
    found = {pq.ParquetFile(root / p).metadata.row_group(0).column(0).compression for p in written}
    assert found == {"GZIP"}
