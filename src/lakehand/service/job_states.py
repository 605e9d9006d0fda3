"""The life of a job: its states, what ends it, and when a failed attempt is retried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

#: By how much the rank of an overdue job is raised, each time; more than any head start. It is
#: raised this often at most, and a job that is urgent goes before all of these.
OVERDUE_RANK, MOST_RAISES = 100 * 86_400.0, 10
URGENT_RANK = 4 * MOST_RAISES * OVERDUE_RANK

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
#: Verbs of one lane never run on a table at the same time.
Lane = Literal["rewrite", "log", "read"]
#: What a running job is asked to do: stop at once, or commit what is proved and stop.
Wish = Literal["cancel", "wind_down"]
#: Why a job ended, in the words of its report or of the queue.
Outcome = Literal[
    "committed",
    "nothing_to_do",
    "stopped_early",
    "refused",
    "failed",
    "cancelled",
    "superseded",
    "table_gone",
    "disabled",
    "lease_lost",
]
#: What a queued job waits for.
WaitsFor = Literal[
    "turn",
    "retry",
    "window",
    "quiet_period",
    "writers_busy",
    "budget",
    "paused",
    "table_gone",
    "table_busy",
    "pool_full",
    "no_worker",
]
#: What the holder of a token may do: look; also act on jobs and tables; everything.
AccessRole = Literal["viewer", "operator", "admin"]

STATES: tuple[JobState, ...] = get_args(JobState)
LANES: tuple[Lane, ...] = get_args(Lane)
WISHES: tuple[Wish, ...] = get_args(Wish)
ROLES: tuple[AccessRole, ...] = get_args(AccessRole)
ENDED: tuple[JobState, ...] = ("succeeded", "failed", "cancelled")

#: Which state may follow which.
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"queued", *ENDED}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

#: The lane of every verb that a job may run.
LANE_OF: dict[str, Lane] = {
    "maintain": "rewrite",
    "compact": "rewrite",
    "cluster": "rewrite",
    "deduplicate": "rewrite",
    "purge": "rewrite",
    "statistics": "rewrite",
    "repair": "rewrite",
    "vacuum": "log",
    "checkpoint": "log",
    "clean_logs": "log",
    "verify": "read",
    "health": "read",
}

#: What may happen to jobs, tables and workers; hooks name it.
EVENT_KINDS = (
    "budget.used_up",
    "hook.dropped",
    "job.cancel_requested",
    "job.cancelled",
    "job.failed",
    "job.lease_lost",
    "job.paused",
    "job.queued",
    "job.requeued",
    "job.resumed",
    "job.started",
    "job.succeeded",
    "service.config_refused",
    "service.paused",
    "service.resumed",
    "table.found",
    "table.found_again",
    "table.gone",
    "table.healthy",
    "table.held",
    "table.paused",
    "table.removed",
    "table.resumed",
    "table.set",
    "table.unhealthy",
    "token.created",
    "token.revoked",
    "worker.drain_requested",
    "worker.lost",
    "worker.started",
    "worker.stop_requested",
    "worker.stopped",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryRule:
    """How often an attempt that failed in one way is repeated, and after how long."""

    attempts: int
    first_delay: float
    longest_delay: float

    def delay_after(self, attempt: int, chance: random.Random) -> float | None:
        """Return the seconds until the next attempt; None if there is none.

        >>> import random
        >>> rule = RetryRule(attempts=3, first_delay=60, longest_delay=600)
        >>> rule.delay_after(3, random.Random(1)) is None
        True
        """
        if attempt >= self.attempts:
            return None
        delay = min(self.longest_delay, self.first_delay * 2.0 ** (attempt - 1))
        return delay * (0.5 + chance.random())


_CONFLICT = RetryRule(attempts=5, first_delay=60, longest_delay=960)
_UNREACHABLE = RetryRule(attempts=8, first_delay=30, longest_delay=3_600)
_FAILED = RetryRule(attempts=3, first_delay=60, longest_delay=600)
#: After an attempt whose worker died: soon, but ever later, because it may have died of the job.
LEASE_LOST = RetryRule(attempts=5, first_delay=5, longest_delay=3_600)

_RULES = {
    "CONFLICT": _CONFLICT,
    "REPLAN": _CONFLICT,
    "STORE_UNREACHABLE": _UNREACHABLE,
    "STORE_FULL": _UNREACHABLE,
    "RUN_TAKEN": _CONFLICT,
    "TASK_FAILED": _FAILED,
    # A secret that this worker cannot read: another worker may, or this one after a change.
    "CONFIG_ERROR": _UNREACHABLE,
}


def retry_rule(error: Mapping[str, Any]) -> RetryRule | None:
    """Return how a failure is retried; None: retrying cannot cure it, and the table is held.

    >>> retry_rule({"code": "PROOF_FAILED", "retryable": False}) is None
    True
    """
    rule = _RULES.get(str(error.get("code")))
    if rule is None and error.get("retryable"):
        return _FAILED
    return rule


#: Errors of an attempt that lost to other writers of the table.
_LOST_CODES = frozenset({"CONFLICT", "REPLAN"})
#: The pause after a loss to writers, at least and at most.
_SHORTEST_BACKOFF, _LONGEST_BACKOFF = 30.0, 4 * 3_600.0
_MOST_PAUSES = 4


def is_lost_to_writers(
    error: Mapping[str, Any] | None, report: Mapping[str, Any] | None = None
) -> bool:
    """Whether an attempt lost most of its work to other writers of the table.

    >>> is_lost_to_writers(None, {"groups": {"committed": 1, "dropped": 2}})
    True
    """
    if error is not None:
        return str(error.get("code")) in _LOST_CODES
    steps = (report or {}).get("steps") or ()
    parts = [report or {}, *(step.get("report") or {} for step in steps)]
    counts = [part.get("groups") or {} for part in parts]
    dropped = sum(one.get("dropped", 0) for one in counts)
    return bool(dropped > sum(one.get("committed", 0) for one in counts))


def backoff_seconds(losses: int, core_seconds: float = 0.0) -> float:
    """Return how long a table's rewrites wait after that many losses in a row.

    `core_seconds` is the processor time of the last one. The pause is that long after the first
    loss, and up to four times as long after further ones: lost work takes at most a fifth of a
    worker in the end, and what is lost cheaply is soon tried again. A pause that doubled with each
    loss cost readers three times as much. The score takes lost work into account as well.

    >>> backoff_seconds(0), backoff_seconds(1, 50.0), backoff_seconds(3, 50.0), backoff_seconds(99)
    (0.0, 50.0, 150.0, 120.0)
    """
    factor = min(losses, _MOST_PAUSES)
    return min(_LONGEST_BACKOFF, factor * max(_SHORTEST_BACKOFF, core_seconds))


def describe_losses(losses: int) -> str:
    """Say how often rewrites of a table lost to its writers.

    >>> describe_losses(2)
    'the last 2 rewrites lost to writers'
    """
    return (
        "the last rewrite lost to writers"
        if losses == 1
        else (f"the last {losses} rewrites lost to writers")
    )
