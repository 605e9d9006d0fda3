"""Rows are put in order with texts that come as numbers in some batches and as texts in others."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehand
from lakehand.sorting import key_ranges

ROWS = 3_000
SORTED = [("kind", "ascending"), ("x", "ascending"), ("other", "ascending")]


def rows_of(number):
    """Return rows of a file; those of every third file have a text that the others lack."""
    lot = np.random.default_rng(number)
    kinds = ["air", "mail", None, "rail"] if number % 3 else ["air", "ship", None]
    others = [f"text {value}" for value in range(200)]
    return pa.table(
        {
            "kind": pa.array(lot.choice(np.array(kinds, object), ROWS).tolist(), pa.string()),
            "x": lot.integers(0, 1_000, ROWS),
            "other": pa.array(lot.choice(others, ROWS).tolist()),
            "price": pa.array(
                [Decimal(int(cents)) / 100 for cents in lot.integers(-99, 99, ROWS)],
                pa.decimal128(15, 2),
            ),
        }
    )


@pytest.fixture
def place(tmp_path):
    for number in (1, 2, 3, 4):
        write_deltalake(tmp_path / "t", rows_of(number), mode="append")
    return tmp_path / "t"


def content(place):
    return DeltaTable(place).to_pyarrow_table().sort_by([*SORTED, ("price", "ascending")])


@pytest.mark.parametrize("sort_task_bytes", [2**30, 0], ids=["one-task", "many-tasks"])
@pytest.mark.parametrize("curve", ["linear", "hilbert"])
def test_texts_are_the_same_and_in_order(place, curve, sort_task_bytes, monkeypatch):
    monkeypatch.setattr(key_ranges, "_waiting_bytes", lambda _limits: 0)
    before = content(place)
    table = lakehand.open_table(place, engine="local")

    report = table.cluster(by="kind, x", curve=curve, sort_task_bytes=sort_task_bytes)

    assert (report.rows_written, report.proof.kind) == (4 * ROWS, "digest")
    assert content(place).equals(before)
    if curve == "linear":
        files = sorted(DeltaTable(place).file_uris())
        found = pa.concat_tables(pq.read_table(file) for file in files)
        nulls = found["kind"].null_count
        assert found["kind"].slice(0, nulls).null_count == nulls
        assert found["kind"].slice(nulls).to_pylist() == sorted(found["kind"].to_pylist()[nulls:])
