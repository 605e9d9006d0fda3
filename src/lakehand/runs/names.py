"""Names of runs, which begin with the time so that the oldest come first, and of groups."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehand.observe.clock import Clock

__all__ = ["group_name", "new_run_id", "started_at"]


def new_run_id(clock: Clock) -> str:
    return f"{clock.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"


def started_at(run_id: str) -> datetime | None:
    """Return when a run got its name; None if that is no name of a run."""
    try:
        return datetime.fromisoformat(run_id.partition("-")[0] + "Z")
    except ValueError:
        return None


def group_name(group: int) -> str:
    """Return under which name the ledger holds what concerns a group."""
    return f"{group:06d}.json"
