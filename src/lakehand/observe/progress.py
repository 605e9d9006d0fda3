"""How far a long operation has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a long verb has come. Raising from the callback cancels the verb safely."""

    #: Stage of the work: survey, read, write, prove, commit, ...
    phase: str
    done: int
    #: None while it is not known.
    total: int | None = None
    #: What is counted: groups, files, bytes.
    unit: str = ""
    #: The same in bytes that are read, where units differ in size.
    done_bytes: int | None = None
    total_bytes: int | None = None
    #: The verb, and the URL of the table that it works on.
    operation: str = ""
    table: str = ""


OnProgress = Callable[[Progress], None]
