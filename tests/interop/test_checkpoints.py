"""Checkpoints of lakehand, read by the other engines once the older commits are gone."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake

from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.storage import open_store
from support.delta_tables import RECIPES, without_commits_before
from support.hand_written_logs import protocol, put_commit


def checkpoint_and_forget(table):
    """Checkpoint a table and return a copy of it that has nothing but the checkpoint."""
    receipt = write_checkpoint(open_store(table))
    return without_commits_before(receipt.version, table, table.with_name("copy"))


def what_delta_spark_says(oracle, path):
    told_apart = {"location", "createdAt", "lastModified", "name"}
    return {k: v for k, v in oracle.detail(path).items() if k not in told_apart}


def what_lakehand_says(path):
    snapshot = load_snapshot(open_store(path))
    state = snapshot.native
    return (
        snapshot.version,
        snapshot.files.sort_by("path").to_pylist(),
        snapshot.properties,
        state.protocol,
        state.transactions,
        state.domains,
    )


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.one_in(4)
def test_delta_spark_reads_the_same_table_from_our_checkpoint(oracle, tmp_path, name):
    recipe, table = RECIPES[name], tmp_path / "t"
    recipe.provide(oracle, table)
    rows = oracle.rows(table, columns=recipe.columns)
    ours, theirs = what_lakehand_says(table), what_delta_spark_says(oracle, table)

    copy = checkpoint_and_forget(table)

    assert oracle.rows(copy, columns=recipe.columns) == rows
    assert recipe.count_found(oracle, copy) == recipe.count_all(oracle, table)
    assert what_delta_spark_says(oracle, copy) == theirs
    assert what_lakehand_says(copy) == ours


def test_delta_spark_goes_on_from_our_checkpoint_and_we_from_its(oracle, tmp_path):
    table = tmp_path / "t"
    RECIPES["v2_checkpoint"].provide(oracle, table)
    copy = checkpoint_and_forget(table)

    oracle.sql(f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES (delta.checkpointInterval = 1)")
    oracle.sql(f"DELETE FROM delta.`{copy}` WHERE id % 5 = 0")

    newest = load_snapshot(open_store(copy))
    assert newest.native.segment.checkpoint_version == newest.version
    live = sum(newest.files["rows"].to_pylist()) - sum(newest.files["deleted_rows"].to_pylist())
    assert live == len(oracle.rows(copy)) == sum(1 for n in range(200) if n % 7 and n % 5)


def test_batches_of_an_application_are_not_repeated_after_our_checkpoint(oracle, tmp_path):
    table = tmp_path / "t"
    mark = {"txnAppId": "app", "txnVersion": "3"}
    oracle.write(table, "SELECT 1 AS id", options=mark)

    copy = checkpoint_and_forget(table)
    oracle.write(copy, "SELECT 1 AS id", options=mark)
    oracle.write(copy, "SELECT 2 AS id", options={**mark, "txnVersion": "4"})

    assert oracle.rows(copy) == ['{"id":1}', '{"id":2}']


def test_sums_that_hadoop_left_behind_do_not_bite(oracle, tmp_path):
    table = tmp_path / "t"
    every = "TBLPROPERTIES (delta.checkpointInterval = 1)"
    oracle.sql(f"CREATE TABLE delta.`{table}` (id INT) USING delta {every}")
    oracle.sql(f"INSERT INTO delta.`{table}` VALUES (1)")
    log = table / "_delta_log"
    assert (log / "._last_checkpoint.crc").exists()
    # A checkpoint that another engine left damaged, beside the sum of what it was.
    whole = log / "00000000000000000001.checkpoint.parquet"
    assert (log / f".{whole.name}.crc").exists()
    whole.write_bytes(whole.read_bytes()[:-9])

    copy = checkpoint_and_forget(table)

    assert oracle.rows(copy) == ['{"id":1}']
    assert not (log / "._last_checkpoint.crc").exists()
    assert not (log / f".{whole.name}.crc").exists()


@pytest.fixture
def delta_rs_table(tmp_path):
    """A table of delta-rs with partitions, an application's mark, a removed file and properties."""
    table = tmp_path / "t"
    rows = pa.table({"id": range(20), "p": ["a b", None, "ü=/%", "c"] * 5})
    for start in (0, 10):
        write_deltalake(
            table,
            rows.slice(start, 10),
            mode="append",
            partition_by=["p"],
            configuration={"delta.appendOnly": "false"},
            commit_properties=CommitProperties(app_transactions=[Transaction("app", start)]),
        )
    DeltaTable(table).delete("id = 5")
    return table


def what_delta_rs_says(path):
    table = DeltaTable(path)
    actions = pa.table(table.get_add_actions()).sort_by("path")
    return (
        table.version(),
        pa.table(
            QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY id")
        ).to_pylist(),
        actions.to_pylist(),
        table.metadata().configuration,
        table.transaction_version("app"),
    )


@pytest.mark.parametrize("statistics", ["json", "struct", "both"])
def test_delta_rs_reads_the_same_table_from_our_checkpoint(delta_rs_table, statistics):
    DeltaTable(delta_rs_table).alter.set_table_properties(
        {
            "delta.checkpoint.writeStatsAsJson": str(statistics != "struct").lower(),
            "delta.checkpoint.writeStatsAsStruct": str(statistics != "json").lower(),
        }
    )
    ours, theirs = what_lakehand_says(delta_rs_table), what_delta_rs_says(delta_rs_table)

    copy = checkpoint_and_forget(delta_rs_table)

    assert what_delta_rs_says(copy) == theirs
    assert what_lakehand_says(copy) == ours


def test_delta_rs_goes_on_from_our_checkpoint(delta_rs_table):
    copy = checkpoint_and_forget(delta_rs_table)

    write_deltalake(copy, pa.table({"id": [99], "p": ["c"]}), mode="append")
    DeltaTable(copy).create_checkpoint()

    assert len(DeltaTable(copy).to_pyarrow_table()) == 20
    assert load_snapshot(open_store(copy)).native.transactions["app"]["version"] == 10


def test_delta_rs_reads_a_v2_checkpoint_with_its_sidecars(delta_rs_table, monkeypatch):
    monkeypatch.setattr("lakehand.formats.delta.checkpoints.checkpoint.SIDECAR_ROWS", 3)
    asked_for_v2(delta_rs_table)
    theirs = what_delta_rs_says(delta_rs_table)

    copy = checkpoint_and_forget(delta_rs_table)

    assert len(list((copy / "_delta_log" / "_sidecars").iterdir())) > 1
    assert what_delta_rs_says(copy) == theirs


def asked_for_v2(table):
    """Commit the feature and the property, which delta-rs itself does not set."""
    store = open_store(table)
    state = load_snapshot(store).native
    described = state.metadata.to_json()
    described["configuration"]["delta.checkpointPolicy"] = "v2"
    features = ["appendOnly", "invariants", "v2Checkpoint"]
    put_commit(
        store,
        state.segment.version + 1,
        protocol(*features[:2], reader=features[2:]),
        {"metaData": described},
    )


def test_the_pointer_is_one_that_delta_rs_and_delta_spark_write_too(delta_rs_table):
    write_checkpoint(open_store(delta_rs_table))
    ours = json.loads((delta_rs_table / "_delta_log" / "_last_checkpoint").read_text())
    DeltaTable(delta_rs_table).create_checkpoint()
    theirs = json.loads((delta_rs_table / "_delta_log" / "_last_checkpoint").read_text())

    assert ours["version"] == theirs["version"]
    assert ours["size"] == theirs["size"]
