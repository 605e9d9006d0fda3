"""Row groups move through a task from bucket to bucket: in blocks, undecoded, by few requests."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.parquet.row_group_copy import Source, copy_row_groups
from lakehand.prove.copied_ranges import prove_copied
from lakehand.storage import CountingStore, open_store

pytestmark = pytest.mark.server

MIB = 2**20
GROUPS, ROWS_A_GROUP = 20, 8_192
BYTES = GROUPS * ROWS_A_GROUP * 1_024


@pytest.fixture
def file(tmp_path):
    """Return a file of 160 MiB that no codec makes smaller."""
    noise = np.random.default_rng(1).bytes(BYTES)
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(1_024), GROUPS * ROWS_A_GROUP, [None, pa.py_buffer(noise)]
    )
    rows = pa.table({"id": np.arange(len(values)), "value": values})
    path = tmp_path / "in.parquet"
    pq.write_table(rows, path, row_group_size=ROWS_A_GROUP, write_page_index=True)
    return path


def test_a_large_file_is_copied_and_proved_in_bounded_memory(s3_server, file, tmp_path):
    store = CountingStore(open_store(s3_server.new_uri(), s3_server.options))
    store.upload(file, "in.parquet")
    store.reset()
    tracemalloc.start()

    source = Source.stored(store, "in.parquet")
    with store.open_writer("out.parquet") as sink:
        copied = copy_row_groups([source], sink, created_by="lakehand", key_values={})
    proof = prove_copied(store, "out.parquet", copied, expected_rows=GROUPS * ROWS_A_GROUP)

    peak, _ = tracemalloc.get_traced_memory()[1], tracemalloc.stop()
    # Five blocks that are read, and what an upload holds: eight parts of 8 MiB, and their copies.
    assert peak < 96 * MIB
    assert proof.bytes == sum(piece.length for piece in copied.ranges) > BYTES
    # Twice the data in blocks of 4 MiB, and a few requests for footers and indexes.
    assert store.requests["get"] + store.requests["get_range"] < 2 * BYTES / (4 * MIB) + 12
    store.download("out.parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(file)
