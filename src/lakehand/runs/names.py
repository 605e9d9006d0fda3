"""Names of runs, which begin with the time so that the oldest come first, and of groups."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.observe.clock import Clock

__all__ = ["in_order_of_deletion", "new_run_id", "numbered_name", "started_at"]


def new_run_id(clock: Clock) -> str:
    return f"{clock.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"


def started_at(run_id: str) -> datetime | None:
    """Return when a run got its name; None if that is no name of a run."""
    try:
        return datetime.fromisoformat(run_id.partition("-")[0] + "Z")
    except ValueError:
        return None


def numbered_name(number: int) -> str:
    """Return under which name the ledger holds what concerns a group or a batch."""
    return f"{number:06d}.json"


def in_order_of_deletion(entries: Sequence[str]) -> Iterator[list[str]]:
    """Yield the entries of a ledger in the stages in which they may be deleted."""
    for stage in (_names_outputs, _is_about_the_run, _says_that_it_runs, _is_fate):
        yield [name for name in entries if stage(name)]


def _names_outputs(name: str) -> bool:
    return name.startswith(("stems/", "results/"))


def _is_fate(name: str) -> bool:
    return name.startswith("fates/")


def _says_that_it_runs(name: str) -> bool:
    return name == "run.json"


def _is_about_the_run(name: str) -> bool:
    return not (_names_outputs(name) or _is_fate(name) or _says_that_it_runs(name))
