"""What lakehand reports while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened. `name` is stable: logs and programs may rely on it."""

    name: str

    def fields(self) -> dict[str, Any]:
        return asdict(self)


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


OnProgress = Callable[[Progress], None]
