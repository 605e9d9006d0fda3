"""Offset indexes are shifted, and read, as any struct would be, in whatever form they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakehand.parquet.footer import elements, field
from lakehand.parquet.row_group_copy import page_locations, shift_offset_index
from lakehand.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, decode, encode

positions = st.integers(0, 2**61)
pages = st.tuples(positions, st.integers(0, 2**31 - 1), positions)
usual = pages.map(lambda page: {1: (I64, page[0]), 2: (I32, page[1]), 3: (I64, page[2])})
#: Another type, a field that a later version may add, one that is missing.
unusual = st.one_of(
    usual.map(lambda page: {**page, 1: (I16, page[1][1])}),
    usual.map(lambda page: {**page, 4: (BINARY, b"new")}),
    usual.map(lambda page: {key: page[key] for key in (1, 2)}),
)
rest = st.sampled_from([{}, {2: (LIST, (I64, [1, 300, 2**40]))}, {9: (BINARY, b"\x16\x02")}])


def _index(found, others):
    return encode({1: (LIST, (STRUCT, found)), **others})


@given(st.lists(usual, max_size=40) | st.lists(usual | unusual, max_size=5), rest, positions)
def test_a_shifted_index_differs_in_its_offsets_alone(found, others, delta):
    data = _index(found, others)

    moved, end = decode(shifted := shift_offset_index(data, delta))

    assert end == len(shifted)
    expected = [{**page, 1: (I64, page[1][1] + delta)} for page in found]
    assert elements(moved, 1) == expected
    assert {key: moved[key] for key in moved if key != 1} == others


@given(st.lists(usual, max_size=40) | st.lists(usual | unusual, max_size=5), rest)
def test_places_of_pages_are_those_of_the_struct(found, others):
    data = _index(found, others)

    expected = [(field(page, 1), field(page, 2)) for page in elements(decode(data)[0], 1)]
    assert list(page_locations(data)) == expected
