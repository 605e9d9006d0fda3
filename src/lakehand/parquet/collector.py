"""Python's garbage collector, kept from what is no garbage."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let footers be taken apart without a look at each of their values time and again.

    They have many values and no cycles. To take one apart would take twice as long, and to move
    row groups by them a tenth longer.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
