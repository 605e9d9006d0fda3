"""Requests in flight while earlier answers are worked on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

__all__ = ["fetch_ahead"]

T = TypeVar("T")
R = TypeVar("R")


def fetch_ahead(items: Iterable[T], fetch: Callable[[T], R], *, window: int) -> Iterator[R]:
    """Yield `fetch(item)` in the order of `items`, with up to `window` fetches in flight.

    An error surfaces when its item's turn comes. Fetches not yet begun are dropped when the caller
    stops early.
    """
    pool = ThreadPoolExecutor(max_workers=window, thread_name_prefix="fetch")
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(fetch, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
