"""The jobs, for pages and the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from lakehand.errors import ValidationError
from lakehand.service.client_values import JobEntry
from lakehand.service.job_states import LANE_OF, STATES
from lakehand.web.endpoints import LIMIT, Call, Endpoint, Parameter, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.job_states import JobState
    from lakehand.service.store.listings import Attempt, Event

#: Queued jobs that the page of jobs shows above the others.
_QUEUED_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class JobList:
    """Some of the jobs, the newest first."""

    #: The jobs.
    jobs: Sequence[JobEntry]
    #: Pass it as `after` for the next ones; null: these are the last.
    next: int | None
    #: What the list was filtered by.
    filter: Mapping[str, str | None] = field(default_factory=dict)
    #: Those that run, the longest first.
    running: Sequence[JobEntry] = ()
    #: Those that wait, in the order in which they start.
    queued: Sequence[JobEntry] = ()

    def to_json(self) -> dict[str, Any]:
        return {"jobs": to_json(list(self.jobs)), "next": self.next}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDetails:
    """One job, its attempts and what happened to it."""

    #: The job.
    job: JobEntry
    #: Its attempts, the oldest first.
    attempts: Sequence[Attempt]
    #: What happened to it, the oldest first.
    events: Sequence[Event]

    def to_json(self) -> dict[str, Any]:
        own = {"attempts": to_json(self.attempts), "events": to_json(self.events)}
        return {**self.job.to_json(), **own}


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """Work that is asked for."""

    #: Number, name or URL of the table.
    table: str
    #: What to run.
    verb: str = "maintain"
    #: Arguments and settings of the verb.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Whether it goes before all other jobs.
    urgent: bool = False


def list_jobs(call: Call) -> JobList:
    state = cast("JobState | None", call.text("state", STATES))
    table, verb = call.text("table"), call.text("verb", tuple(LANE_OF))
    limit, before = call.limit(), call.number("after")
    states = () if state is None else (state,)
    is_filtered = any(one is not None for one in (before, state, table, verb))
    if call.is_page and not is_filtered:
        found, running, queued = call.client.jobs.now(newest=limit + 1, queued=_QUEUED_SHOWN)
    else:
        found = call.client.jobs.list(
            states=states, table=table, verb=verb, before=before, limit=limit + 1
        )
        running, queued = (), ()
    return JobList(
        jobs=found[:limit],
        next=found[limit - 1].job.id if len(found) > limit else None,
        filter={"state": state, "table": table, "verb": verb},
        running=sorted(running, key=lambda entry: entry.job.started_at or 0.0),
        queued=queued,
    )


def show_job(call: Call) -> JobDetails:
    number = call.id("job")
    return JobDetails(
        job=call.client.jobs.show(number),
        attempts=call.client.listings.attempts(number),
        events=call.client.listings.events(job_id=number, after=0, limit=200),
    )


def submit_job(call: Call) -> JobEntry:
    new = call.record(NewJob)
    reserved = {"table", "verb", "urgent", "self"} & new.options.keys()
    if reserved:
        raise ValidationError(f"options cannot have {min(reserved)!r}", field="options")
    return call.client.jobs.submit(new.table, new.verb, urgent=new.urgent, **new.options)


def cancel_job(call: Call) -> JobEntry:
    return call.client.jobs.cancel(call.id("job"))


def pause_job(call: Call) -> JobEntry:
    return call.client.jobs.pause(call.id("job"))


def resume_job(call: Call) -> JobEntry:
    return call.client.jobs.resume(call.id("job"))


def retry_job(call: Call) -> JobEntry:
    return call.client.jobs.retry(call.id("job"))


_ACTIONS = {
    "cancel": (cancel_job, "End a queued job; ask a running one to stop."),
    "pause": (pause_job, "Keep a job from starting; a running one commits what is proved."),
    "resume": (resume_job, "Let a paused job start again."),
    "retry": (retry_job, "Queue the work of an ended job again."),
}

JOB_ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs",
        view=list_jobs,
        summary="Jobs, the newest first.",
        returns=JobList,
        parameters=(
            Parameter(name="state", help="Only jobs in this state.", choices=STATES),
            Parameter(name="table", help="Number, name or URL of the table."),
            Parameter(name="verb", help="What they run.", choices=tuple(LANE_OF)),
            Parameter(name="after", help="`next` of the answer before.", kind="integer"),
            LIMIT,
        ),
        template="jobs.html",
    ),
    Endpoint(
        method="POST",
        path="/jobs",
        view=submit_job,
        summary="Ask for a job; where one of the kind is queued already, that one is returned.",
        returns=JobEntry,
        body=NewJob,
        role="operator",
        status=202,
        after_form="/jobs/{id}",
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}",
        view=show_job,
        summary="One job, its attempts and what happened to it.",
        returns=JobDetails,
        template="job.html",
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/jobs/{{job}}/{action}",
            view=view,
            summary=sentence,
            returns=JobEntry,
            role="operator",
            after_form="/jobs/{id}",
        )
        for action, (view, sentence) in _ACTIONS.items()
    ),
)
