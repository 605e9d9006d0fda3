"""Progress of long operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of an operation. An exception from the callback cancels the operation safely."""

    #: Phase of the operation: survey, read, write, prove, commit, ...
    phase: str
    done: int
    #: None if not known yet.
    total: int | None = None
    #: What is counted: groups, files, bytes.
    unit: str = ""
    #: The same in bytes read, for units that differ in size.
    done_bytes: int | None = None
    total_bytes: int | None = None
    #: The verb, and the URL of the table that it works on.
    operation: str = ""
    table: str = ""


OnProgress = Callable[[Progress], None]
