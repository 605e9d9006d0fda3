"""Arrow's memory in tasks that sort rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.worker import TaskLimits

__all__ = ["frugal_arrow", "give_back"]

#: From here on what Arrow keeps for later is a small part of what a task has.
_ROOMY_BYTES = 2**30
#: Where rows are taken by one thread and freed by another, its default keeps as much as it uses,
#: and on Linux it takes huge pages, each of which the system clears as a whole.
_FRUGAL_BACKEND = "jemalloc"


@contextmanager
def frugal_arrow() -> Iterator[None]:
    """Let Arrow give memory back that it does not use, for as long as the block runs."""
    if _FRUGAL_BACKEND not in pa.supported_memory_backends():
        yield
        return
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        pa.set_memory_pool(usual)


def give_back(limits: TaskLimits) -> None:
    """Return what this thread has freed to the system, where a task has little memory."""
    if limits.memory_bytes < _ROOMY_BYTES:
        pa.default_memory_pool().release_unused()
