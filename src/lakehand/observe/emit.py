"""The one place that every report and every progress value passes.

It is the seam for metrics, logs and services: they subscribe here, and need not know the verbs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from lakehand.observe.progress import OnProgress, Progress

P = ParamSpec("P")
R = TypeVar("R")

#: Gets a report, as a verb returns it, or a `Progress`.
Subscriber = Callable[[Any], object]

_logger = get_logger(__name__)
_lock = Lock()
#: Replaced as a whole, so that `emit` needs no lock.
_subscriptions: tuple[Subscription, ...] = ()


class Subscription:
    """Calls a subscriber until it is closed, at the end of a `with` block or by `close`."""

    def __init__(self, callback: Subscriber) -> None:
        self._callback = callback

    def deliver(self, event: object) -> None:
        """Call the subscriber; what it raises is logged, and does not reach the operation."""
        try:
            self._callback(event)
        except Exception as error:  # noqa: BLE001  an observer must not break an operation
            message, name = "A subscriber failed on %s: %r", type(event).__name__
            log_event(_logger, logging.ERROR, "subscriber_failed", message, name, error)

    def close(self) -> None:
        """Stop calling the subscriber."""
        global _subscriptions  # noqa: PLW0603  the subscribers of this process
        with _lock:
            _subscriptions = tuple(one for one in _subscriptions if one is not self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def subscribe(callback: Subscriber) -> Subscription:
    """Call `callback` with every report and every progress value of this process from now on.

    It is called in the thread of the operation, which waits for it.
    """
    global _subscriptions  # noqa: PLW0603  the subscribers of this process
    subscription = Subscription(callback)
    with _lock:
        _subscriptions = (*_subscriptions, subscription)
    return subscription


def emit(event: object) -> None:
    """Hand a report or a progress value to all subscribers."""
    for subscription in _subscriptions:
        subscription.deliver(event)


def reported(operation: Callable[P, R]) -> Callable[P, R]:
    """Emit what `operation` returns, which is its report."""

    @wraps(operation)
    def run(*args: P.args, **options: P.kwargs) -> R:
        report = operation(*args, **options)
        emit(report)
        return report

    return run


def telling(on_progress: OnProgress | None, *, operation: str, table: str) -> OnProgress:
    """Return a function that emits progress of an operation, then hands it to `on_progress`.

    What `on_progress` raises stops the operation.
    """

    def tell(progress: Progress) -> None:
        if on_progress is None and not _subscriptions:
            return
        named = replace(progress, operation=operation, table=table)
        emit(named)
        if on_progress is not None:
            on_progress(named)

    return tell
