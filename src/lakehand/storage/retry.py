"""Retries of retryable errors, with exponential backoff and jitter."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from lakehand.errors import CancelledError, is_retryable
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lakehand.settings import Settings

T = TypeVar("T")

#: Settings that `RetryPolicy.of` reads.
RETRY_SETTINGS = ("max_retries", "retry_base_delay", "retry_max_delay")

_ABORT_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often to retry, and how long to wait."""

    #: Attempts after the first one.
    max_retries: int = 3
    base_delay: timedelta = timedelta(milliseconds=100)
    max_delay: timedelta = timedelta(seconds=10)
    multiplier: float = 2.0
    #: Each wait varies by up to this fraction of itself, before it is limited.
    jitter: float = 0.5

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the policy of `settings`."""
        return cls(
            max_retries=settings.max_retries,
            base_delay=settings.retry_base_delay,
            max_delay=settings.retry_max_delay,
        )

    def delay_seconds(self, retry: int, *, chance: float) -> float:
        """Return the wait before `retry` (1 is the first); `chance` is between 0 and 1.

        >>> RetryPolicy().delay_seconds(3, chance=0.5)
        0.4
        """
        plain = self.base_delay.total_seconds() * self.multiplier ** (retry - 1)
        jittered = plain * (1 + self.jitter * (2 * chance - 1))
        return min(jittered, self.max_delay.total_seconds())


NO_RETRY = RetryPolicy(max_retries=0)


@dataclass(kw_only=True, slots=True)
class RetryMetrics:
    """Attempts and waits of one call."""

    attempts: int = 0
    succeeded: bool = False
    elapsed_seconds: float = 0.0
    #: Waits between attempts, in seconds.
    delays: list[float] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def retries(self) -> int:
        return max(self.attempts - 1, 0)


@dataclass(kw_only=True, slots=True)
class _Call:
    """One call with its attempts; who runs and waits is up to the caller."""

    policy: RetryPolicy
    clock: Clock
    chance: Callable[[], float]
    on_retry: Callable[[Exception, int, float], object] | None
    on_success: Callable[[RetryMetrics], object] | None = None
    on_failure: Callable[[Exception, RetryMetrics], object] | None = None
    abort: Callable[[], bool] | None = None
    metrics: RetryMetrics = field(default_factory=RetryMetrics)

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Complete the metrics at the end of the block, and report it."""
        started = self.clock.monotonic()
        try:
            yield
        except Exception as error:
            self.metrics.elapsed_seconds = self.clock.monotonic() - started
            error.retry_metrics = self.metrics  # type: ignore[attr-defined]
            if self.on_failure is not None:
                self.on_failure(error, self.metrics)
            raise
        self.metrics.succeeded = True
        self.metrics.elapsed_seconds = self.clock.monotonic() - started
        if self.on_success is not None:
            self.on_success(self.metrics)

    def begin(self) -> None:
        self._check_abort()
        self.metrics.attempts += 1

    def pauses_after(self, error: Exception) -> Iterator[float]:
        """Yield waits until the next attempt; raise `error` if there is none."""
        self.metrics.errors.append(error)
        delay = self._next_delay(error)
        if delay is None:
            raise error
        self.metrics.delays.append(delay)
        until = self.clock.monotonic() + delay
        if self.abort is None:
            yield delay
            return
        while (left := until - self.clock.monotonic()) > 0:
            self._check_abort()
            yield min(left, _ABORT_POLL_SECONDS)

    def _next_delay(self, error: Exception) -> float | None:
        attempts = self.metrics.attempts
        if not is_retryable(error) or attempts > self.policy.max_retries:
            return None
        delay = self.policy.delay_seconds(attempts, chance=self.chance())
        if self.on_retry is not None and self.on_retry(error, attempts, delay) is False:
            return None
        return delay

    def _check_abort(self) -> None:
        if self.abort is not None and self.abort():
            raise CancelledError("cancelled on request during retries")


@overload
def with_retry(
    function: Callable[[], T],
    *,
    policy: RetryPolicy = ...,
    clock: Clock | None = ...,
    chance: Callable[[], float] = ...,
    on_retry: Callable[[Exception, int, float], object] | None = ...,
    on_success: Callable[[RetryMetrics], object] | None = ...,
    on_failure: Callable[[Exception, RetryMetrics], object] | None = ...,
    abort: Callable[[], bool] | None = ...,
    return_metrics: Literal[False] = ...,
) -> T: ...


@overload
def with_retry(
    function: Callable[[], T],
    *,
    policy: RetryPolicy = ...,
    clock: Clock | None = ...,
    chance: Callable[[], float] = ...,
    on_retry: Callable[[Exception, int, float], object] | None = ...,
    on_success: Callable[[RetryMetrics], object] | None = ...,
    on_failure: Callable[[Exception, RetryMetrics], object] | None = ...,
    abort: Callable[[], bool] | None = ...,
    return_metrics: Literal[True],
) -> tuple[T, RetryMetrics]: ...


def with_retry(  # noqa: PLR0913  each option is a callback that callers name
    function: Callable[[], T],
    *,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008  frozen
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
    on_retry: Callable[[Exception, int, float], object] | None = None,
    on_success: Callable[[RetryMetrics], object] | None = None,
    on_failure: Callable[[Exception, RetryMetrics], object] | None = None,
    abort: Callable[[], bool] | None = None,
    return_metrics: bool = False,
) -> T | tuple[T, RetryMetrics]:
    """Call `function` until it succeeds, fails permanently or has used all retries.

    Only errors with `retryable` are retried. `on_retry(error, attempt, delay_seconds)` is called
    before each wait; if it returns False, the error is raised at once. `abort` is called before
    every attempt and during waits; if it returns True, CancelledError is raised. The metrics are
    the second result with `return_metrics`, and `error.retry_metrics` on failure.
    """
    call = _Call(
        policy=policy,
        clock=clock or SystemClock(),
        chance=chance,
        on_retry=on_retry,
        on_success=on_success,
        on_failure=on_failure,
        abort=abort,
    )
    with call.reported():
        value = _run(function, call)
    return (value, call.metrics) if return_metrics else value


def _run(function: Callable[[], T], call: _Call) -> T:
    while True:
        call.begin()
        try:
            return function()
        except Exception as error:  # noqa: BLE001  raised again unless it is retried
            for pause in call.pauses_after(error):
                call.clock.sleep(pause)


async def with_retry_async(
    function: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008  frozen
    chance: Callable[[], float] = random.random,
    on_retry: Callable[[Exception, int, float], object] | None = None,
    abort: Callable[[], bool] | None = None,
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> T:
    """Await `function()` until it succeeds, as `with_retry` does; other tasks run during waits."""
    import asyncio

    clock = SystemClock()
    call = _Call(policy=policy, clock=clock, chance=chance, on_retry=on_retry, abort=abort)
    with call.reported():
        while True:
            call.begin()
            try:
                return await function()
            except Exception as error:  # noqa: BLE001  raised again unless it is retried
                for pause in call.pauses_after(error):
                    await (sleep or asyncio.sleep)(pause)
