"""Time is counted once, for the innermost stage."""

from __future__ import annotations

import pytest

from lakehand.observe.clock import ManualClock, Stopwatch


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def watch(clock):
    return Stopwatch(clock)


def test_an_inner_stage_takes_its_time_from_the_outer_one(clock, watch):
    with watch.measure("write"):
        clock.advance(1)
        with watch.measure("prove"):
            clock.advance(2)
        clock.advance(4)

    assert watch.milliseconds() == {"write": 5000, "prove": 2000}


def test_time_outside_of_stages_is_not_counted(clock, watch):
    with watch.measure("a"):
        clock.advance(1)
    clock.advance(10)
    with watch.measure("a"):
        clock.advance(1)

    assert watch.milliseconds() == {"a": 2000}


def test_waiting_for_items_is_a_stage_and_using_them_is_not(clock, watch):
    def slow_source():
        for number in range(3):
            clock.advance(1)
            yield number

    with watch.measure("write"):
        for _ in watch.iterate("read", slow_source()):
            clock.advance(10)

    assert watch.milliseconds() == {"read": 3000, "write": 30000}


def test_a_stage_that_fails_is_counted_too(clock, watch):
    def fail():
        with watch.measure("a"):
            clock.advance(1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()

    assert watch.milliseconds() == {"a": 1000}
