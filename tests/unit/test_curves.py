"""Curves: each place of the grid has one key, and near keys are near places."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lakehand.sorting.curves import bits_per_column, curve_keys, hilbert_keys, zorder_keys

GRIDS = [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2), (7, 1)]


def grid(columns: int, bits: int) -> list[np.ndarray]:
    """Return every place of a grid, a column for each of its dimensions."""
    places = itertools.product(range(2**bits), repeat=columns)
    return list(np.array(list(places), np.uint32).T.copy())


def along(keys: np.ndarray, ranks: list[np.ndarray]) -> np.ndarray:
    """Return the places in the order of their keys, one row each."""
    return np.stack(ranks, axis=1)[np.argsort(keys)].astype(np.int64)


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
@pytest.mark.parametrize("keys_of", [hilbert_keys, zorder_keys])
def test_every_place_has_its_own_key(columns, bits, keys_of):
    keys = keys_of(grid(columns, bits), bits)
    assert np.array_equal(np.sort(keys), np.arange(2 ** (columns * bits)))


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
def test_neighbours_on_hilberts_curve_differ_by_one_step_in_one_column(columns, bits):
    ranks = grid(columns, bits)
    places = along(hilbert_keys(ranks, bits), ranks)
    assert (np.abs(np.diff(places, axis=0)).sum(axis=1) == 1).all()


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
def test_zorder_is_the_order_of_interleaved_bits(columns, bits):
    ranks = grid(columns, bits)
    texts = [
        "".join(f"{rank:0{bits}b}"[bit] for bit in range(bits) for rank in place)
        for place in zip(*ranks, strict=True)
    ]
    assert zorder_keys(ranks, bits).tolist() == [int(text, 2) for text in texts]


@pytest.mark.parametrize("curve", ["hilbert", "zorder", "linear"])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 9, 64])
def test_any_number_of_columns_up_to_64_has_keys_that_tell_corners_apart(curve, columns):
    top = 2 ** bits_per_column(columns) - 1
    corners = [np.array([0, top], np.uint32)] * columns
    assert len(set(curve_keys(curve, corners).tolist())) == 2


def test_the_linear_key_orders_by_the_first_column_then_by_the_next():
    ranks = grid(3, 2)
    keys = curve_keys("linear", ranks)
    assert np.array_equal(np.argsort(keys), np.lexsort(ranks[::-1]))


@pytest.mark.parametrize("columns", [0, 65])
def test_a_key_of_no_or_too_many_columns_is_an_error(columns):
    with pytest.raises(ValueError, match="1 to 64 columns"):
        bits_per_column(columns)


@pytest.mark.parametrize("keys_of", [hilbert_keys, zorder_keys])
def test_ranks_are_not_changed_and_keys_do_not_depend_on_their_neighbours(keys_of):
    random = np.random.default_rng(7)
    ranks = [random.integers(0, 2**16, 40_000, np.uint32) for _ in range(3)]
    before = [column.copy() for column in ranks]
    keys = keys_of(ranks, 16)
    assert all(np.array_equal(*pair) for pair in zip(ranks, before, strict=True))
    some = slice(16_000, 17_000)
    assert np.array_equal(keys[some], keys_of([column[some] for column in ranks], 16))
