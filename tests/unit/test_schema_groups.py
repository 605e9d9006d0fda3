"""Files are read together only if their footers describe columns by the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import CorruptFileError
from lakehand.parquet.columns import by_schema

if TYPE_CHECKING:
    from pathlib import Path

_FIELD_ID = {b"PARQUET:field_id": b"7"}


def test_files_of_equal_columns_are_one_group_whatever_they_hold(tmp_path: Path) -> None:
    few = _write(tmp_path / "few", pa.table({"a": [1]}))
    many = _write(tmp_path / "many", pa.table({"a": range(100_000)}))
    none = _write(tmp_path / "none", pa.table({"a": pa.array([], pa.int64())}))

    assert by_schema([few, many, none]) == [[0, 1, 2]]


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"b": [1]}),
        pa.table({"a": pa.array([1], pa.int32())}),
        pa.table({"a": [1], "b": [1]}),
        pa.table({"a": [1]}, pa.schema([pa.field("a", pa.int64(), nullable=False)])),
        pa.table({"a": [1]}, pa.schema([pa.field("a", pa.int64(), metadata=_FIELD_ID)])),
    ],
)
def test_files_that_differ_in_a_column_are_apart(tmp_path: Path, other: pa.Table) -> None:
    first = _write(tmp_path / "first", pa.table({"a": [1]}))
    second = _write(tmp_path / "second", other)
    third = _write(tmp_path / "third", pa.table({"a": [2]}))

    assert by_schema([first, second, third]) == [[0, 2], [1]]


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.parquet"
    path.write_bytes(_write(tmp_path / "whole", pa.table({"a": [1]})).read_bytes()[:-9])

    with pytest.raises(CorruptFileError, match=r"torn\.parquet"):
        by_schema([path])


def _write(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path)
    return path
