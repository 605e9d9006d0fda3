"""What the end of a job, and of an attempt at one, adds to the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from lakehand.service.run_metrics import Increment, report_increments
from lakehand.service.store.database_schema import JOBS
from lakehand.service.store.service_metrics import observe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.service.store.records import AttemptEnd

#: What the counters need to know of a job.
RUN = select(JOBS.c.verb, JOBS.c.engine, JOBS.c.queued_at, JOBS.c.not_before).where(
    JOBS.c.id == bindparam("job")
)
_CONFLICTS = {"CONFLICT", "REPLAN"}


def ended_job(verb: str, outcome: str, error: Mapping[str, Any] | None = None) -> Increment:
    """Return what the end of a job adds."""
    code = str((error or {}).get("code") or "")
    return Increment("jobs_ended", {"verb": verb, "outcome": outcome, "error_code": code})


def attempt_increments(
    job: Any, end: AttemptEnd, started_at: float, ended_at: float
) -> Iterator[Increment]:
    """Return what the end of an attempt adds; `job` is a row of `RUN`."""
    verb = {"verb": job.verb}
    engine = {**verb, "engine": job.engine}
    yield Increment("job_attempts", {**verb, "outcome": end.outcome})
    yield from observe("job_wait_seconds", verb, started_at - max(job.queued_at, job.not_before))
    yield from observe(
        "job_duration_seconds", {**engine, "outcome": end.outcome}, ended_at - started_at
    )
    yield Increment("core_seconds", engine, float(end.spent.get("core_seconds", 0.0)))
    yield Increment("cost", verb, float(end.spent.get("cost", 0.0)))
    if end.outcome == "lease_lost":
        yield Increment("leases_lost", {})
    code = (end.error or {}).get("code")
    yield Increment("proof_failures", verb, float(code == "PROOF_FAILED"))
    yield Increment("commit_conflicts", verb, float(code in _CONFLICTS))
    if end.report:
        yield from report_increments(end.report)
