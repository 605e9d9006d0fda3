from __future__ import annotations

import threading

import pytest

from lakehand.storage.objects import fetch_ahead


def test_answers_come_in_the_order_of_the_questions():
    assert list(fetch_ahead(range(50), lambda n: n * n, window=4)) == [n * n for n in range(50)]


def test_requests_overlap():
    together = threading.Barrier(3, timeout=60)
    assert len(list(fetch_ahead(range(3), lambda _: together.wait(), window=3))) == 3


def test_no_more_is_asked_for_than_the_window_allows():
    asked = []
    answers = fetch_ahead(range(100), asked.append, window=3)
    next(answers)
    answers.close()
    assert len(asked) <= 3


def test_an_error_surfaces_in_its_turn():
    def fetch(number):
        if number == 2:
            raise ValueError("two")
        return number

    answers = fetch_ahead(range(5), fetch, window=4)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(answers)
