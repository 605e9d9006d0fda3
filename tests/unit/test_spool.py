"""Rows that wait on disk: none is lost, and nothing is left of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehand.errors import StorageError
from lakehand.sink.staging import Spool

BATCH = pa.record_batch({"id": [1, 2], "name": ["a", None]})


def test_rows_come_back_in_order_with_their_numbers_and_outlive_the_spool(tmp_path):
    spool = Spool(BATCH.schema, directory=tmp_path)
    for _ in range(3):
        spool.add(BATCH)
    rows = spool.table()
    spool.close()

    assert rows.to_pydict() == {"id": [1, 2] * 3, "name": ["a", None] * 3, "number": [*range(6)]}


def test_a_process_that_dies_leaves_no_file(tmp_path):
    spool = Spool(BATCH.schema, directory=tmp_path)
    spool.add(BATCH)

    assert list(tmp_path.iterdir()) == []
    spool.close()


def test_no_rows_are_a_table_without_rows(tmp_path):
    spool = Spool(BATCH.schema, directory=tmp_path)

    assert spool.table().num_rows == 0
    spool.close()


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        Spool(BATCH.schema, directory=tmp_path / "nowhere")
