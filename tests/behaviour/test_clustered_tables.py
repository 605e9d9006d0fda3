"""Compaction of tables that say by which columns they are ordered."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehand
from lakehand.formats.delta.table import DeltaTable
from lakehand.storage import open_store
from support.copyable_tables import append_file, create
from support.small_tables import commit_by_hand

ROWS_A_FILE = 1_000
SCHEMA = pa.schema([("payload", pa.int64()), ("place", pa.int64())])
FEATURES = ["clustering", "domainMetadata"]
DOMAIN = {"clusteringColumns": [["place"]], "domainName": "delta.clustering"}
CUBE = {"ZCUBE_ID": "7", "ZCUBE_ZORDER_BY": '["place"]'}
#: Files in the order in which they came.
PLACES = [0, 50, 10, 60, 20, 70, 30, 80]


@pytest.fixture
def path(tmp_path):
    """A table of eight files, whose places are far apart, in no order."""
    path = tmp_path / "table"
    handle = create(path, SCHEMA)
    for place in PLACES:
        values = pa.array(range(ROWS_A_FILE), pa.int64())
        append_file(handle, pa.table([values, pa.array([place] * ROWS_A_FILE)], schema=SCHEMA))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES}
    domain = {
        "domain": "delta.clustering",
        "configuration": json.dumps(DOMAIN),
        "removed": False,
    }
    commit_by_hand(path, {"protocol": protocol}, {"domainMetadata": domain})
    return path


def tag_below(path, limit):
    """Say of the files of lower places that they were put in order together."""
    handle = DeltaTable(open_store(path))
    cube = {"clusteringProvider": "liquid", "tags": CUBE, "dataChange": False}
    snapshot = handle.snapshot(statistics=["place"])
    bounds = snapshot.files["bounds"].to_pylist()
    rows = [row for row, bound in enumerate(bounds) if bound["place"]["min"] < limit]
    files = handle.data_files(snapshot, rows)
    commit_by_hand(path, *({"add": {**file.native["add"], **cube}} for file in files))


def places_by_file(table):
    """Return the least and the greatest place of each file, smallest first."""
    bounds = table.snapshot(statistics=["place"]).files["bounds"].to_pylist()
    return sorted((bound["place"]["min"], bound["place"]["max"]) for bound in bounds)


def cubes(table):
    natives = table.snapshot().files["native"].to_pylist()
    return sorted((str(n["clustering_provider"]), dict(n["tags"] or [])) for n in natives)


@pytest.mark.parametrize("strategy", ["greedy", "bin-packing", "sort-by-size"])
def test_only_neighbours_become_one_file(path, strategy):
    table = lakehand.open_table(path, engine="local", min_files=2, strategy=strategy)
    size = table.snapshot().files["bytes"][0].as_py()
    rows = table.to_arrow().sort_by([("place", "ascending"), ("payload", "ascending")])

    report = table.compact(target_file_bytes=2 * size + size // 2, small_file_ratio=0.9)

    assert (report.files_after, report.strategy) == (4, "greedy")
    assert places_by_file(table) == [(0, 10), (20, 30), (50, 60), (70, 80)]
    again = table.to_arrow().sort_by([("place", "ascending"), ("payload", "ascending")])
    assert again.equals(rows)


def test_files_of_a_cube_stay_in_it(path):
    tag_below(path, 40)
    table = lakehand.open_table(path, engine="local", min_files=2)

    assert table.compact().files_after == 2

    assert places_by_file(table) == [(0, 30), (50, 80)]
    assert cubes(table) == [("None", {}), ("liquid", CUBE)]
