"""Statements about jobs that run often, built once for each database.

To build one takes SQLAlchemy several times as long as to run it. They are kept by the expression of
the time, which is one object per database.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, and_, bindparam, case, func, literal_column, update
from sqlalchemy.dialects import postgresql, sqlite

from lakehand.service.job_states import LANE_OF, MOST_RAISES, OVERDUE_RANK, URGENT_RANK
from lakehand.service.store.database_schema import ATTEMPTS, JOBS

if TYPE_CHECKING:
    from lakehand.service.store.records import JobRequest

#: Words of the statements, not parameters: else PostgreSQL cannot use a partial index in a plan
#: that it keeps.
QUEUED = JOBS.c.state == literal_column("'queued'")
RUNNING = JOBS.c.state == literal_column("'running'")
#: What a job that does not run has not.
UNLEASED: dict[str, Any] = {"leased_until": None, "slot": None, "worker_id": None, "wish": None}
#: Columns of a new job that its request gives.
REQUESTED = (
    "table_id",
    "lane",
    "verb",
    "scope",
    "options",
    "trigger",
    "reasons",
    "asked_by",
    "urgency",
    "score",
    "expected",
    "engine",
    "memory_bytes",
    "pool",
    "runs_until",
    "max_attempts",
    "waits_for",
    "wait_details",
)


#: Why a job does not start, whatever is requested automatically.
_BACKS_OFF = JOBS.c.waits_for.in_(("writers_busy", "budget"))


def smaller(one: Any, other: Any) -> Any:
    return case((one < other, one), else_=other)


def larger(one: Any, other: Any) -> Any:
    return case((one > other, one), else_=other)


@functools.lru_cache(maxsize=64)
def enqueueing(now: Any, is_sqlite: bool) -> Any:  # noqa: FBT001  cached by position
    dialect = sqlite if is_sqlite else postgresql
    new = dialect.insert(JOBS).values(
        queued_at=now,
        rank_at=now - bindparam("head_start", type_=Double),
        not_before=now + bindparam("delay", type_=Double),
        **{name: bindparam(name) for name in REQUESTED},
    )
    given = new.excluded
    return new.on_conflict_do_update(
        index_elements=[JOBS.c.table_id, JOBS.c.verb, JOBS.c.scope],
        index_where=QUEUED,
        set_={
            "requests": JOBS.c.requests + 1,
            "options": given.options,
            "reasons": given.reasons,
            "expected": given.expected,
            "urgency": smaller(JOBS.c.urgency, given.urgency),
            "score": larger(JOBS.c.score, given.score),
            "rank_at": smaller(JOBS.c.rank_at, given.rank_at),
            "not_before": case(
                # New commits are no reason to end a back-off; a request by hand is.
                (and_(_BACKS_OFF, given.asked_by.is_(None)), JOBS.c.not_before),
                (JOBS.c.runs_until <= now, given.not_before),
                else_=smaller(JOBS.c.not_before, given.not_before),
            ),
            # What was asked for by hand is bound to no window.
            "runs_until": case(
                (JOBS.c.asked_by.is_not(None), JOBS.c.runs_until), else_=given.runs_until
            ),
            "asked_by": func.coalesce(given.asked_by, JOBS.c.asked_by),
        },
    ).returning(JOBS.c.id, JOBS.c.requests)


@functools.lru_cache(maxsize=64)
def promoting(now: Any) -> Any:
    """Raise jobs that could have started for `overdue` seconds, again after as long a time."""
    raised = (JOBS.c.queued_at - JOBS.c.rank_at) / OVERDUE_RANK
    return (
        update(JOBS)
        .where(
            QUEUED,
            JOBS.c.not_before + bindparam("overdue", type_=Double) * (raised + 1.0) <= now,
            raised < MOST_RAISES,
        )
        .values(rank_at=JOBS.c.rank_at - OVERDUE_RANK)
    )


def own_head_start(queued_at: float, rank_at: float) -> float:
    """Return the head start that a job has by its score, not because it is overdue."""
    head = queued_at - rank_at
    return head if head >= URGENT_RANK / 2 else head - OVERDUE_RANK * round(head / OVERDUE_RANK)


#: Gives a queued job that the service asked for a higher score, as more is known of its table.
RESCORING = (
    update(JOBS)
    .where(
        JOBS.c.table_id == bindparam("table"),
        JOBS.c.verb == bindparam("for_verb"),
        QUEUED,
        JOBS.c.asked_by.is_(None),
        JOBS.c.score < bindparam("new_score", type_=Double),
    )
    .values(
        score=bindparam("new_score", type_=Double),
        expected=bindparam("new_expected"),
        reasons=bindparam("new_reasons"),
        rank_at=smaller(
            JOBS.c.rank_at, JOBS.c.queued_at - bindparam("new_head_start", type_=Double)
        ),
    )
)


@functools.lru_cache(maxsize=64)
def beating(now: Any) -> Any:
    return (
        update(JOBS)
        .where(JOBS.c.id == bindparam("job"), JOBS.c.fence == bindparam("with_fence"), RUNNING)
        .values(leased_until=now + bindparam("lease", type_=Double), progress=bindparam("so_far"))
        # The end of its window winds a job down, as a wish does.
        .returning(case((JOBS.c.runs_until <= now, "wind_down"), else_=JOBS.c.wish).label("wish"))
    )


@functools.lru_cache(maxsize=64)
def finishing(now: Any) -> Any:
    return (
        update(JOBS)
        .where(JOBS.c.id == bindparam("job"), JOBS.c.fence == bindparam("with_fence"), RUNNING)
        .values(
            state=bindparam("as"),
            outcome=bindparam("how"),
            report=bindparam("doc"),
            error=bindparam("failure"),
            ended_at=now,
            waits_for=None,
            **UNLEASED,
        )
        .returning(JOBS.c.table_id, JOBS.c.verb)
    )


@functools.lru_cache(maxsize=64)
def ending_attempt(now: Any) -> Any:
    attempt = (ATTEMPTS.c.job_id == bindparam("job"), ATTEMPTS.c.fence == bindparam("with_fence"))
    return (
        update(ATTEMPTS)
        .where(*attempt, ATTEMPTS.c.ended_at.is_(None))
        .values(
            ended_at=now,
            outcome=bindparam("how"),
            report=bindparam("doc"),
            error=bindparam("failure"),
            spent=bindparam("used"),
        )
        .returning(ATTEMPTS.c.reserved, ATTEMPTS.c.started_at, ATTEMPTS.c.ended_at)
    )


def values_of(request: JobRequest) -> dict[str, Any]:
    """Return what `enqueueing` needs to know."""
    values = {name: getattr(request, name, None) for name in REQUESTED}
    documents = {
        "options": dict(request.options),
        "reasons": list(request.reasons),
        "expected": dict(request.expected),
    }
    waits = {"head_start": request.head_start, "delay": request.delay}
    return {**values, **documents, **waits, "lane": LANE_OF[request.verb]}
