"""A bit that flipped in a page with a checksum stops whatever moves, compares or drops its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehand
from lakehand.errors import CorruptFileError
from support.compactions import tasks_inline

ALL_KEYS = pa.table({"id": np.arange(10_000), "x": np.zeros(10_000)})
WORK = {
    "sort": lambda table: table.cluster(by=["id", "x"]),
    "shuffle": lambda table: table.cluster(by=["id", "x"], sort_task_bytes=64 * 2**10),
    "deduplicate": lambda table: table.deduplicate(key=["id"]),
    "delete": lambda table: table.delete(where="id % 7 = 3"),
    "upsert": lambda table: table.upsert(ALL_KEYS, key=["id"]),
}


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(7)
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    table = lakehand.create_table(tmp_path / "t", schema, engine="local")
    for _ in range(4):
        rows = {"id": random.integers(0, 10_000, 8_000), "x": random.random(8_000)}
        table.append(pa.table(rows, schema))
    return table


def flip_a_value(path) -> None:
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + chunk.total_compressed_size // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("work", WORK)
def test_nothing_is_committed_until_the_bit_is_set_right(table, tmp_path, work):
    rows = table.to_arrow().sort_by([("id", "ascending"), ("x", "ascending")])
    damaged = next((tmp_path / "t").glob("*.parquet"))
    flip_a_value(damaged)

    with tasks_inline(), pytest.raises(CorruptFileError):
        WORK[work](table)

    assert table.snapshot().version == 4
    flip_a_value(damaged)
    assert table.to_arrow().sort_by([("id", "ascending"), ("x", "ascending")]) == rows
    with tasks_inline():
        assert WORK[work](table).outcome == "committed"
