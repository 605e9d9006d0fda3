"""What the job store holds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from lakehand.service.job_states import JobState, Lane, Wish


#: Until when something is paused whose pause has no end.
FOREVER = 9_999_999_999.0


def record_json(record: Any) -> dict[str, Any]:
    """Return a record as a JSON document; times are ISO 8601, and what has no end is null."""
    # Not by asdict, which copies reports and other documents value by value.
    return {one.name: _plain(one.name, getattr(record, one.name)) for one in fields(record)}


def _plain(name: str, value: Any) -> Any:
    is_time = name.endswith(("_at", "_until")) or name == "not_before"
    if not is_time or value is None:
        return value
    return None if value >= FOREVER else format_time(value)


def format_time(seconds: float) -> str:
    """Return a time of the store in ISO 8601.

    >>> format_time(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTable:
    """A table that a source has found."""

    url: str
    format: str | None = None
    name: str | None = None


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
    #: What it waits for until it may start, and more about that.
    waits_for: str | None = None
    wait_details: Mapping[str, Any] | None = None

    @classmethod
    def again(cls, job: Any, by: str | None) -> Self:
        """Return the request for the work of an ended job."""
        kept = ("table_id", "verb", "scope", "options", "reasons", "urgency", "score", "expected")
        place = ("engine", "memory_bytes", "pool", "max_attempts")
        same = {name: getattr(job, name) for name in (*kept, *place)}
        return cls(trigger="retry", asked_by=by or job.asked_by, **same)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A row of the table of jobs."""

    #: Number of the job.
    id: int
    #: Number of its table.
    table_id: int
    #: Jobs of one lane never run on a table at the same time.
    lane: Lane
    #: What it runs.
    verb: str
    #: Part of the table; empty: all of it.
    scope: str
    #: Arguments and settings of the verb.
    options: dict[str, Any]
    #: `queued`, `running`, `succeeded`, `failed` or `cancelled`.
    state: JobState
    #: What requested it: `commits`, `time`, `schedule`, `manual`, `retry`, ...
    trigger: str
    #: How often it was requested while it was queued.
    requests: int
    #: Why.
    reasons: list[str]
    #: Who requested it.
    asked_by: str | None
    #: 0 at once, 1 by hand, 2 due, 3 optional.
    urgency: int
    #: Expected benefit.
    score: float
    #: Expected cost and benefit.
    expected: dict[str, Any]
    #: Where its tasks run.
    engine: str
    #: Memory that it needs.
    memory_bytes: int
    #: Pool that it runs in.
    pool: str
    #: Slot of the pool; null unless it is running.
    slot: int | None
    #: When it was queued.
    queued_at: float
    #: Jobs start in the order of this time.
    rank_at: float
    #: It does not start before.
    not_before: float
    #: It does not start after.
    runs_until: float | None
    #: What a queued job waits for.
    waits_for: str | None
    #: Which budget it waits for, or how often writers were faster.
    wait_details: dict[str, Any] | None
    #: Who paused it.
    paused_by: str | None
    #: Number of claims: tells attempts apart.
    fence: int
    #: Attempts that count.
    attempt: int
    #: It has failed after this many attempts.
    max_attempts: int
    #: The worker that runs it.
    worker_id: str | None
    #: Until when the worker has it without a sign of life.
    leased_until: float | None
    #: What it is asked to do: `cancel` or `wind_down`.
    wish: Wish | None
    #: When it was started first.
    started_at: float | None
    #: When it ended.
    ended_at: float | None
    #: How far it is.
    progress: dict[str, Any] | None
    #: Why it ended.
    outcome: str | None
    #: Report of the verb.
    report: dict[str, Any] | None
    #: Error of the last attempt.
    error: dict[str, Any] | None
    #: Of the job's table, where a job is read for people.
    table_url: str | None = None
    table_name: str | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        return cls(**row._mapping)  # noqa: SLF001  the documented way to a row's names

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """The outcome of a request."""

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
class Losses:
    """How often in a row rewrites of a table lost to its writers, and when last."""

    count: int = 0
    last_at: float = 0.0
    #: Processor time of the last one.
    core_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Freed:
    """A job whose worker had died."""

    job_id: int
    table_id: int
    fence: int
    state: JobState
    outcome: str | None
