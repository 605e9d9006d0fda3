"""Vectors as the digest sees them: two are alike only if every bit of every element is."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.formats.lance.comparable_types import plain_batch, plain_schema

WIDTH = 3
KIND = pa.list_(pa.float32(), WIDTH)
ELEMENTS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, math.inf, math.nan]))
VECTORS = st.one_of(st.none(), st.lists(ELEMENTS, min_size=WIDTH, max_size=WIDTH))


def plain(vectors: pa.Array) -> list[bytes | None]:
    batch = plain_batch(pa.record_batch({"v": vectors}))
    assert batch.schema == plain_schema(pa.schema({"v": vectors.type}))
    batch.validate(full=True)
    return batch["v"].to_pylist()


def known(vector: list[float | None] | None) -> tuple | None:
    """Return what tells a vector from others: the bits of its elements, and which are null."""
    return vector and tuple(None if one is None else struct.pack("<f", one) for one in vector)


@given(st.lists(VECTORS, max_size=8), st.integers(0, 8))
@settings(max_examples=200, deadline=None)
def test_vectors_look_alike_only_if_they_are(vectors, start):
    array = pa.array(vectors, KIND).slice(start)
    found = plain(array)
    expected = [known(vector) for vector in vectors[start:]]
    for one, seen in zip(expected, found, strict=True):
        for other, seen_other in zip(expected, found, strict=True):
            assert (one == other) == (seen == seen_other)


@given(st.lists(VECTORS, min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_a_vector_looks_the_same_whatever_comes_with_it(vectors):
    together = plain(pa.array(vectors, KIND))
    assert together == [plain(pa.array([vector], KIND))[0] for vector in vectors]


def test_the_payload_of_a_nan_is_seen():
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(bits.view(np.float32)), 1)
    assert len(set(plain(vectors))) == 3


@pytest.mark.parametrize("kind", [pa.int8(), pa.float16(), pa.int64(), pa.float64()])
def test_elements_of_every_width_are_taken_whole(kind):
    values = pa.array([1, 2, 3, 4]).cast(kind)
    vectors = pa.FixedSizeListArray.from_arrays(values, 2)
    first, second = plain(vectors)
    assert first + second == values.buffers()[1].to_pybytes()[: 4 * kind.bit_width // 8]
