"""A copy that is not the same bytes under a true footer is caught before anyone relies on it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import ProofError
from lakehand.parquet import row_group_copy as parquet_copy
from lakehand.parquet.row_group_copy import Source, copy_row_groups
from lakehand.prove.copied_ranges import prove_copied
from lakehand.storage import open_store

ROWS = 4_000


@pytest.fixture
def store(tmp_path):
    for name in ("a", "b"):
        pq.write_table(
            pa.table({"id": range(ROWS // 2), "name": [f"{name}-{n}" for n in range(ROWS // 2)]}),
            tmp_path / f"{name}.parquet",
            row_group_size=1_000,
            write_page_index=True,
            max_rows_per_page=100,
        )
    return open_store(tmp_path)


def _copy(store):
    sources = [Source.stored(store, key) for key in ("a.parquet", "b.parquet")]
    with store.open_writer("out.parquet") as sink:
        return copy_row_groups(sources, sink, created_by="lakehand", key_values={})


def _damage(store, offset: int) -> None:
    data = bytearray(store.get("out.parquet"))
    data[offset] ^= 1
    store.put("out.parquet", bytes(data))


def test_a_faithful_copy_is_proved_by_its_ranges(store):
    proof = prove_copied(store, "out.parquet", _copy(store), expected_rows=ROWS)
    assert (proof.kind, proof.rows) == ("ranges", ROWS)
    assert proof.bytes < store.head("out.parquet").bytes


@pytest.mark.parametrize("place", ["first", "last"])
def test_one_flipped_bit_is_caught(store, place):
    copied = _copy(store)
    pieces = copied.ranges
    offset = pieces[0].start if place == "first" else pieces[-1].start + pieces[-1].length - 1
    _damage(store, offset)
    with pytest.raises(ProofError, match="differ from their source"):
        prove_copied(store, "out.parquet", copied, expected_rows=ROWS)


def test_a_wrong_row_count_is_caught(store):
    with pytest.raises(ProofError, match=f"has {ROWS} rows"):
        prove_copied(store, "out.parquet", _copy(store), expected_rows=ROWS + 1)


def test_a_stale_offset_index_is_caught(store, monkeypatch):
    monkeypatch.setattr(parquet_copy, "shift_offset_index", lambda data, _delta: data)
    copied = _copy(store)
    with pytest.raises(ProofError, match="page index"):
        prove_copied(store, "out.parquet", copied, expected_rows=ROWS)


def test_a_footer_that_names_other_bytes_is_caught(store):
    copied = _copy(store)
    copied = replace(copied, ranges=copied.ranges[:-1])
    with pytest.raises(ProofError, match="was not copied"):
        prove_copied(store, "out.parquet", copied, expected_rows=ROWS)


def test_chunks_at_other_places_are_caught(store):
    copied = _copy(store)
    sources = [Source.stored(store, k) for k in ("b.parquet",)]
    with store.open_writer("out.parquet") as sink:
        copy_row_groups(sources * 2, sink, created_by="lakehand", key_values={})
    with pytest.raises(ProofError):
        prove_copied(store, "out.parquet", copied, expected_rows=ROWS)
