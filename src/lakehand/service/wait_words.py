"""Words for what a job waits for: commands and pages say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.model.quantities import format_ago, format_count
from lakehand.service.store.records import FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.job_states import WaitsFor
    from lakehand.service.store.job_waits import Wait

#: What a queued job waits for, in words.
WAITS: Mapping[WaitsFor, str] = {
    "turn": "waits for its turn",
    "retry": "waits to be retried",
    "window": "waits for its window",
    "quiet_period": "waits until new files are old enough",
    "writers_busy": "waits because the table's writers are busy",
    "budget": "waits for budget",
    "paused": "is paused",
    "table_gone": "waits because its table is gone",
    "table_busy": "waits for another job of the table",
    "pool_full": "waits for a slot of its pool",
    "no_worker": "waits for a worker: lakehand serve starts one",
}


def describe_wait(wait: Wait, now: float) -> str:
    """Say in words what a job waits for, until when, and because of what.

    >>> from lakehand.service.store.job_waits import Wait
    >>> describe_wait(Wait(reason="turn", ahead=3), 0.0)
    'waits for its turn, 3 jobs before it'
    """
    words = WAITS[wait.reason]
    if wait.paused is not None:
        what = "" if wait.paused == "job" else f", because the {wait.paused} is"
        words = f"is paused{what}, by {wait.by}"
    elif wait.job is not None:
        words = f"waits for job {wait.job} of the table"
    if wait.ahead:
        words += f", {format_count(wait.ahead, 'job')} before it"
    if wait.until is not None and now < wait.until < FOREVER:
        words += f", {format_ago(wait.until, now)}"
    if wait.details is not None and wait.reason != "no_worker":
        words += f": {wait.details}"
    return words
