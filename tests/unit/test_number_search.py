"""The place of numbers among boundaries is that which a search finds, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from lakehand.sorting.sort_keys import search_numbers

ROWS = 200_000
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def cases():
    lot = np.random.default_rng(3)
    yield "uniform", lot.integers(0, 10**9, ROWS)
    yield "few values", lot.integers(-3, 3, ROWS)
    yield "one value", np.full(ROWS, 7)
    yield "skewed", (lot.pareto(0.7, ROWS) * 1000).astype(np.int64)
    yield "whole range", lot.integers(LEAST, MOST, ROWS, endpoint=True)
    yield "ends", lot.choice([LEAST, LEAST + 1, -1, 0, MOST - 1, MOST], ROWS)
    yield "bytes", lot.integers(0, 255, ROWS).astype(np.uint8)
    yield "days", lot.integers(-30_000, 30_000, ROWS).astype(np.int32)
    yield "unsigned", lot.integers(0, 2**64 - 1, ROWS, dtype=np.uint64)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "numbers"), list(cases()), ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("boundary_count", [1, 2, 1022])
def test_what_is_found_is_what_a_search_finds(name, numbers, side, boundary_count):
    sample = np.sort(numbers)
    places = np.linspace(ROWS // 50, ROWS - ROWS // 50, boundary_count).astype(int)
    boundaries = sample[places]

    found = search_numbers(boundaries, numbers, side=side)

    assert (found == np.searchsorted(boundaries, numbers, side=side)).all()
