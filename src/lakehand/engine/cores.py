"""How many threads a task may run."""

from __future__ import annotations

import os
import sys

__all__ = ["cores_a_task", "granted_cores", "usable_cores"]


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_a_task(*, tasks: int) -> int:
    """Share the cores of this machine out to tasks that run on it; each gets one at least."""
    return max(1, usable_cores() // max(1, tasks))


def granted_cores() -> int:
    """Return the cores that Spark gave the task that calls; 1 outside of Spark."""
    if "pyspark" not in sys.modules:
        return 1
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())
