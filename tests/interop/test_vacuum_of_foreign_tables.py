"""Vacuum of tables that others wrote: whatever their paths look like, none of them is harmed."""

from __future__ import annotations

import shutil
from random import Random
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake

from lakehand import open_table
from lakehand.errors import RefusedError
from support.hand_written_logs import add, remove
from support.later_vacuums import data_files, vacuum_later
from support.modelled_tables import ModelledTable
from support.small_tables import commit_by_hand, make_table

#: Partition values that are hard on whoever compares paths.
ODD_VALUES = ["a b", "100%", "x%20y", "k=v", "q?#&", "ä/ö", "c:d", "it's", '"', "+", "", None]


def values_sql() -> str:
    quoted = [
        "(CAST(NULL AS STRING))" if v is None else "('" + v.replace("'", "\\'") + "')"
        for v in ODD_VALUES
    ]
    return ", ".join(quoted)


def live_files(oracle, path):
    return set(oracle.files_read(path, where="true"))


def test_partition_values_of_all_kinds_written_by_delta_spark(oracle, tmp_path):
    path = tmp_path / "t"
    rows = f"SELECT id, p FROM range(4) CROSS JOIN (SELECT col1 AS p FROM VALUES {values_sql()})"
    oracle.write(path, rows, partition_by=["p"])
    oracle.sql(f"DELETE FROM delta.`{path}` WHERE id % 2 = 0")
    before, count = oracle.rows(path), len(data_files(path))
    report = vacuum_later(path)
    assert report.files_deleted == count // 2
    assert oracle.rows(path) == before
    assert len(data_files(path)) == len(live_files(oracle, path)) == count // 2


def test_partition_values_of_all_kinds_written_by_delta_rs(tmp_path):
    path = tmp_path / "t"
    values = pa.array(ODD_VALUES, pa.string())
    for number in range(2):
        table = pa.table({"id": pa.array([number] * len(values), pa.int64()), "p": values})
        write_deltalake(str(path), table, partition_by=["p"], mode="overwrite")
    before = DeltaRsTable(str(path)).to_pyarrow_table().sort_by("p")
    report = vacuum_later(path)
    assert report.files_deleted == report.files_retained
    assert DeltaRsTable(str(path)).to_pyarrow_table().sort_by("p") == before
    assert set(DeltaRsTable(str(path)).to_pyarrow_table()["id"].to_pylist()) == {1}


@pytest.mark.parametrize("name", ["a b.parquet", "é %41.parquet", "x#1?.parquet", "a+b=c.parquet"])
def test_file_names_of_all_kinds(oracle, tmp_path, name):
    path = make_table(tmp_path / "t", commits=1)
    (old,) = [file for file in data_files(path) if "eu" in file]
    shutil.copy(path / old, path / name)
    live = add(quote(name), size=(path / name).stat().st_size, partitionValues={"region": "eu"})
    commit_by_hand(path, remove(old, at_ms=0, partitionValues={"region": "eu"}), live)
    before = oracle.rows(path)
    assert vacuum_later(path).files_deleted == 1
    assert (path / name).exists()
    assert oracle.rows(path) == before


def test_absolute_paths_inside_and_outside_of_the_root(oracle, tmp_path):
    path = make_table(tmp_path / "a table", commits=1)
    eu, us = sorted(data_files(path))
    outside = tmp_path / "elsewhere" / "a far.parquet"
    outside.parent.mkdir()
    shutil.move(path / us, outside)
    for file, region in ((path / eu, "eu"), (outside, "us")):
        size = file.stat().st_size
        action = add(file.as_uri(), size=size, partitionValues={"region": region})
        relative = eu if region == "eu" else us
        gone = remove(relative, at_ms=0, partitionValues={"region": region})
        commit_by_hand(path, gone, action)
    before = oracle.rows(path)
    assert vacuum_later(path).files_deleted == 0
    assert outside.exists()
    assert oracle.rows(path) == before
    assert len(before) == 10


@pytest.fixture
def cloned(oracle, tmp_path):
    """Return a table, and a shallow clone of what it was before all of its rows were replaced."""
    source, clone = tmp_path / "source", tmp_path / "clone"
    oracle.write(source, "SELECT id FROM range(10)", files=2)
    oracle.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    oracle.write(source, "SELECT id + 100 AS id FROM range(10)", mode="overwrite")
    return source, clone


def test_a_declared_clone_keeps_the_files_of_its_source(oracle, cloned):
    source, clone = cloned
    before = oracle.rows(clone)
    open_table(source).pin("copy", clone=str(clone))
    report = vacuum_later(source)
    assert (report.files_deleted, report.kept.pinned) == (0, 2)
    assert [(holder.kind, holder.name) for holder in report.holders] == [("clone", "copy")]
    assert oracle.rows(clone) == before
    open_table(source).unpin("copy")
    assert vacuum_later(source).files_deleted == 2


def test_vacuum_of_a_clone_touches_its_own_files_only(oracle, cloned):
    source, clone = cloned
    oracle.sql(f"INSERT INTO delta.`{clone}` VALUES (50)")
    oracle.sql(f"DELETE FROM delta.`{clone}` WHERE id IN (1, 50)")
    before = oracle.rows(clone), oracle.rows(source), data_files(source)
    own = data_files(clone)
    report = vacuum_later(clone)
    assert 0 < report.files_deleted < len(own)
    assert (oracle.rows(clone), oracle.rows(source), data_files(source)) == before


def test_a_clone_that_cannot_be_read_stops_the_vacuum_of_its_source(cloned):
    source, clone = cloned
    open_table(source).pin("copy", clone=str(clone))
    shutil.rmtree(clone / "_delta_log")
    before = data_files(source)
    with pytest.raises(RefusedError, match="copy"):
        vacuum_later(source)
    assert data_files(source) == before


def test_history_shows_our_vacuum_as_that_of_delta_spark(oracle, cloned):
    source, _ = cloned
    assert vacuum_later(source).files_deleted == 2
    end, start = oracle.history(source)[:2]
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationMetrics"]["numFilesToDelete"] == "2"
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"]["numDeletedFiles"] == "2"


def vacuum_with_spark(oracle, path):
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # It makes so many tasks of every listing, 10,000 by default.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    with oracle.configured(settings):
        oracle.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")


def test_vacuums_of_both_engines_follow_each_other(oracle, cloned):
    source, _ = cloned
    before = oracle.rows(source)
    assert vacuum_later(source).files_deleted == 2
    vacuum_with_spark(oracle, source)
    assert oracle.rows(source) == before
    oracle.write(source, "SELECT id FROM range(5)", mode="overwrite")
    vacuum_with_spark(oracle, source)
    assert len(data_files(source)) == 1
    assert vacuum_later(source).files_deleted == 0
    assert vacuum_later(source, mode="lite").files_deleted == 0
    assert len(oracle.rows(source)) == 5


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]
)
def test_delta_spark_reads_every_version_that_is_promised(oracle, tmp_path, seed):
    model, chance = ModelledTable(), Random(seed)
    live_a_while(model, chance, steps=30)
    model.check()
    model.copy_to(tmp_path / "t")
    for version in model.promised():
        expected = sorted(f'{{"id":{id_}}}' for id_ in model.rows[version])
        assert oracle.rows(tmp_path / "t", version=version, fresh=False) == expected


def live_a_while(model: ModelledTable, chance: Random, *, steps: int) -> None:
    """Let chance write, delete and clean up."""
    doings = (
        model.append,
        model.append,
        model.delete,
        model.restore,
        model.pin,
        model.begin_append,
        model.end_append,
        model.undo,
        lambda _: model.compact(),
        lambda _: model.wait(chance.choice([1, 25, 100])),
        lambda _: model.vacuum(grace=chance.choice(["0", "24h"]), entries="always"),
        lambda _: model.vacuum(mode="lite"),
        lambda _: model.clean_logs(),
    )
    for _ in range(steps):
        chance.choice(doings)(chance)
