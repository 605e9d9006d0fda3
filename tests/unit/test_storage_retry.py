from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lakehand.errors import (
    AccessDeniedError,
    CancelledError,
    CommitConflictError,
    StoreUnreachableError,
    ValidationError,
)
from lakehand.observe.clock import ManualClock
from lakehand.storage import NO_RETRY, RetryPolicy, with_retry, with_retry_async


class Flaky:
    """Fails as often as told to, then answers."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left = failures
        self.calls = 0
        self.error = error or StoreUnreachableError("later")

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_three_retries_with_doubling_waits_by_default(clock):
    value, metrics = with_retry(Flaky(3), clock=clock, chance=lambda: 0.5, return_metrics=True)

    assert value == "done"
    assert clock.sleeps == pytest.approx([0.1, 0.2, 0.4])
    assert (metrics.attempts, metrics.retries, metrics.succeeded) == (4, 3, True)
    assert sum(metrics.delays) == pytest.approx(0.7)
    assert metrics.elapsed_seconds == pytest.approx(0.7)
    assert len(metrics.errors) == 3


def test_a_fourth_failure_is_raised_with_its_metrics(clock):
    flaky = Flaky(9)
    with pytest.raises(StoreUnreachableError) as raised:
        with_retry(flaky, clock=clock)

    assert flaky.calls == 4
    assert raised.value.retry_metrics.retries == 3
    assert not raised.value.retry_metrics.succeeded


@pytest.mark.parametrize("error", [AccessDeniedError("no"), ValueError("bug"), OSError("disk")])
def test_what_cannot_succeed_later_is_not_tried_again(clock, error):
    flaky = Flaky(1, error)
    with pytest.raises(type(error)):
        with_retry(flaky, clock=clock)

    assert flaky.calls == 1
    assert clock.sleeps == []


def test_a_conflict_is_tried_again(clock):
    assert with_retry(Flaky(1, CommitConflictError("lost")), clock=clock) == "done"


def test_jitter_moves_a_wait_by_half_either_way():
    policy = RetryPolicy()

    assert policy.delay_seconds(1, chance=0.0) == pytest.approx(0.05)
    assert policy.delay_seconds(1, chance=1.0) == pytest.approx(0.15)


def test_the_cap_holds_after_the_jitter():
    policy = RetryPolicy(max_delay=timedelta(seconds=1))

    assert policy.delay_seconds(20, chance=1.0) == 1.0
    assert policy.delay_seconds(4, chance=1.0) == 1.0


def test_on_retry_sees_error_attempt_and_wait(clock):
    seen = []
    with_retry(
        Flaky(2),
        clock=clock,
        chance=lambda: 0.5,
        on_retry=lambda error, attempt, delay: seen.append((error.message, attempt, delay)),
    )

    assert seen == [("later", 1, 0.1), ("later", 2, 0.2)]


def test_on_retry_returning_false_stops_at_once(clock):
    flaky = Flaky(1)
    with pytest.raises(StoreUnreachableError):
        with_retry(flaky, clock=clock, on_retry=lambda *_: False)

    assert flaky.calls == 1
    assert clock.sleeps == []


def test_callbacks_hear_of_success_and_failure(clock):
    heard = []
    listeners = {
        "on_success": lambda metrics: heard.append(("success", metrics.attempts)),
        "on_failure": lambda error, metrics: heard.append((error.code, metrics.attempts)),
    }
    with_retry(Flaky(1), clock=clock, **listeners)
    with pytest.raises(AccessDeniedError):
        with_retry(Flaky(1, AccessDeniedError("no")), clock=clock, **listeners)

    assert heard == [("success", 2), ("ACCESS_DENIED", 1)]


def test_abort_before_the_first_attempt_calls_nothing(clock):
    flaky = Flaky(0)
    with pytest.raises(CancelledError):
        with_retry(flaky, clock=clock, abort=lambda: True)

    assert flaky.calls == 0


def test_abort_ends_a_long_wait_early(clock):
    policy = RetryPolicy(base_delay=timedelta(seconds=10))
    with pytest.raises(CancelledError):
        with_retry(Flaky(1), policy=policy, clock=clock, abort=lambda: clock.elapsed > 1)

    assert clock.elapsed < 2


def test_no_retry_means_one_attempt(clock):
    flaky = Flaky(1)
    with pytest.raises(StoreUnreachableError):
        with_retry(flaky, policy=NO_RETRY, clock=clock)

    assert flaky.calls == 1


def run_async(outcomes, **options):
    """Await a function that returns or raises `outcomes` in turn; return its result and waits."""
    left, waits = iter(outcomes), []

    async def function():
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(seconds):
        waits.append(seconds)

    call = with_retry_async(function, chance=lambda: 0.5, sleep=sleep, **options)
    return asyncio.run(call), waits


def test_an_async_function_is_retried_with_the_same_waits():
    busy = StoreUnreachableError("busy")

    assert run_async([busy, busy, "done"]) == ("done", [0.1, 0.2])


def test_an_async_function_that_fails_for_good_is_not_retried():
    with pytest.raises(ValidationError) as raised:
        run_async([ValidationError("no"), "done"])
    assert raised.value.retry_metrics.attempts == 1


def test_an_async_call_can_be_aborted():
    asked = iter([False, True])

    with pytest.raises(CancelledError):
        run_async([StoreUnreachableError("busy"), "done"], abort=lambda: next(asked))
