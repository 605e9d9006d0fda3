"""How many threads a task may run: as many as its engine grants it, told where the task runs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_granted: ContextVar[int] = ContextVar("granted_cores", default=1)


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreShare:
    """How tasks that run side by side on one machine share its cores.

    Counted where the tasks run, which need not be where they are sent from.
    """

    #: All tasks, those that wait for others included.
    tasks: int
    #: Cores that the engine was given; None: those of the machine.
    cores: int | None = None
    #: Tasks that run at the same time, at most; None: one for each core.
    slots: int | None = None

    def of_task(self, index: int) -> int:
        """Return the cores of one task, at least one; the first, which are the largest, get more.

        So do the last ones, when there are no others left to keep all cores busy.

        >>> [CoreShare(cores=8, tasks=3).of_task(index) for index in range(3)]
        [3, 3, 2]
        >>> [CoreShare(cores=2, tasks=5).of_task(index) for index in range(5)]
        [1, 1, 1, 1, 2]
        """
        cores = self.cores or usable_cores()
        slots = max(1, self.slots or cores)
        place = index % slots
        beside = min(slots, max(1, self.tasks - (index - place)))
        each, left = divmod(cores, beside)
        return max(1, each + (place < left))


def granted_cores() -> int:
    """Return the cores that the engine gave the task that calls; 1 outside of a task."""
    return _granted.get()


@contextmanager
def granting(cores: int) -> Iterator[None]:
    """Let the task inside the block run on so many cores."""
    token = _granted.set(cores)
    try:
        yield
    finally:
        _granted.reset(token)
