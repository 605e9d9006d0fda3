"""Processes that are not counted for coverage, which takes each of them a fifth of a second."""

from __future__ import annotations

import os

_COVERAGE = "COVERAGE_PROCESS"


def unmeasured() -> dict[str, str]:
    """Return the environment for a process that runs nothing of ours, or dies before it can tell.

    What is killed never says which lines it ran.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(_COVERAGE)}
