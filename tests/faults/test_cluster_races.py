"""Clustering beside other writers: appends stay, what lost is left out, lost pieces are noticed."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehand.engine import exchange
from lakehand.errors import ProofError, ReplanError
from lakehand.observe.steps import Step, listen
from support.compactions import CLUSTER, CLUSTER_BY_MANY_TASKS, open_table
from support.small_tables import commit_by_hand, make_table, read_sorted, rows
from support.unharmed import assert_clean, assert_unharmed

BOTH_WAYS = pytest.mark.parametrize(
    "cluster", [CLUSTER, CLUSTER_BY_MANY_TASKS], ids=lambda way: way.name
)


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture(autouse=True)
def stop_listening():
    yield
    listen(None)


def once_proved(act):
    """Have `act` happen when the first group is proved."""
    done = []

    def listener(step):
        if step is Step.TASK_PROVED and not done:
            done.append(step)
            act()

    listen(listener)


@BOTH_WAYS
def test_rows_appended_meanwhile_stay(place, cluster):
    before = read_sorted(place)
    once_proved(lambda: write_deltalake(str(place), rows(60, 10), mode="append"))

    cluster(place)

    assert_unharmed(place, pa.concat_tables([before, rows(60, 10)]))
    assert open_table(str(place)).snapshot().file_count == 4


@BOTH_WAYS
def test_a_partition_that_was_deleted_from_is_left_out_and_the_other_committed(place, cluster):
    once_proved(lambda: DeltaTable(str(place)).delete("region = 'eu' AND id < 20"))
    left = read_sorted(place).to_pandas().query("region != 'eu' or id >= 20")

    cluster(place)

    assert read_sorted(place)["id"].to_pylist() == left["id"].to_list()
    partitions = open_table(str(place)).snapshot().files["partition"].to_pylist()
    assert [partition["region"] for partition in partitions].count("us") == 1


def test_other_columns_declared_meanwhile_stop_it(place):
    version = open_table(str(place)).snapshot().version
    domain = {
        "domain": "delta.clustering",
        "configuration": '{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}',
        "removed": False,
    }
    once_proved(lambda: commit_by_hand(place, {"domainMetadata": domain}))

    with pytest.raises(ReplanError, match="changed the columns"):
        CLUSTER(place)

    assert open_table(str(place)).snapshot().version == version + 1


def test_a_piece_that_is_lost_on_its_way_is_noticed(place, monkeypatch):
    before = read_sorted(place)
    read, calls = exchange._read_pieces, itertools.count()
    monkeypatch.setattr(
        exchange,
        "_read_pieces",
        lambda *asked: itertools.islice(read(*asked), 0 if next(calls) else 1, None),
    )

    report = CLUSTER_BY_MANY_TASKS(place)

    assert [error["code"] for error in report.errors] == [ProofError.code]
    assert (report.groups.planned, report.groups.committed) == (2, 1)
    assert_unharmed(place, before)
    assert_clean(place)
