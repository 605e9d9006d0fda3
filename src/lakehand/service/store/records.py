"""What the job store holds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from lakehand.service.job_states import JobState, Lane, Wish


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """Work that is wanted for a table. The same request again makes a queued job more urgent."""

    table_id: int
    verb: str
    #: Why: `commits`, `time`, `notified`, `schedule`, `manual`, ...
    trigger: str
    scope: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    asked_by: str | None = None
    #: 0 by hand, 1 urgent, 2 due, 3 nice to have.
    urgency: int = 2
    score: float = 0.0
    #: Seconds by which the job goes before others that were queued at the same time.
    head_start: float = 0.0
    #: Seconds before which it does not start.
    delay: float = 0.0
    runs_until: float | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "local"
    memory_bytes: int = 0
    pool: str = "default"
    max_attempts: int = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A row of the table of jobs."""

    id: int
    table_id: int
    lane: Lane
    verb: str
    scope: str
    options: dict[str, Any]
    state: JobState
    trigger: str
    requests: int
    reasons: list[str]
    asked_by: str | None
    urgency: int
    score: float
    expected: dict[str, Any]
    engine: str
    memory_bytes: int
    pool: str
    slot: int | None
    queued_at: float
    rank_at: float
    not_before: float
    runs_until: float | None
    waits_for: str | None
    paused_by: str | None
    fence: int
    attempt: int
    max_attempts: int
    worker_id: str | None
    leased_until: float | None
    wish: Wish | None
    started_at: float | None
    ended_at: float | None
    progress: dict[str, Any] | None
    outcome: str | None
    report: dict[str, Any] | None
    error: dict[str, Any] | None

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        return cls(**row._mapping)  # noqa: SLF001  the documented way to a row's names


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """What became of a request."""

    job_id: int
    is_new: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Who asks for a job, and what it can run."""

    worker_id: str
    lease_seconds: float = 60.0
    engines: Sequence[str] = ("local",)
    memory_bytes: int = 2**62
    #: Pools that the worker serves; empty: all.
    pools: Sequence[str] = ()
    #: Where the search for a free slot begins, another for each worker.
    offset: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEnd:
    """How an attempt at a job ended, and what it spent."""

    outcome: str
    report: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    #: By unit of the budgets.
    spent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Freed:
    """A job whose worker had died."""

    job_id: int
    table_id: int
    fence: int
    state: JobState
    outcome: str | None
