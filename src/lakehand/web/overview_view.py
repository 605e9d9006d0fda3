"""The overview of the service, for its page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.web.endpoints import Call, Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.client_values import JobEntry
    from lakehand.service.returns import TableReturn
    from lakehand.service.store.budgets import Budget
    from lakehand.service.store.listings import Event, HealthDay
    from lakehand.service.store.service_state import ServiceStatus

_DAY = 86_400.0
_EVENTS_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """Something that a person should look at."""

    #: `bad` or `warn`.
    level: str
    #: What it is.
    message: str
    #: Page that shows more.
    link: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    """What the jobs of the last day have done."""

    #: Jobs that changed a table.
    commits: int
    #: Files before minus files after.
    files_saved: int
    #: Rows that were rewritten and proved.
    rows_rewritten: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """How the service is doing, at a glance."""

    #: Tables, jobs and workers.
    status: ServiceStatus
    #: How many tables are `good`, `fair`, `poor` and of `unknown` health.
    health: Mapping[str, int]
    #: The same for each of the last days.
    health_by_day: Sequence[HealthDay]
    #: What needs a person.
    alerts: Sequence[Alert]
    #: Events of the last day, by kind.
    changes: Mapping[str, int]
    #: What the jobs of the last day have done.
    savings: Savings
    #: What the jobs of the last 30 days have cost and were worth.
    returns: TableReturn
    #: Core seconds that queued jobs are expected to need; null if no forecast is known.
    backlog_core_seconds: float | None
    #: Budgets of today.
    budgets: Sequence[Budget]
    #: Jobs that run.
    running: Sequence[JobEntry]
    #: The newest events.
    events: Sequence[Event]


def show_overview(call: Call) -> Overview:
    client, listings = call.client, call.client.listings
    status, since, budgets = client.service.status(), client.now() - _DAY, client.budgets()
    return Overview(
        status=status,
        health=listings.health_counts(),
        health_by_day=call.slow("health_by_day", listings.health_by_day),
        alerts=tuple(_alerts(status, budgets)),
        changes=listings.count_events(since=since),
        savings=call.slow("savings", lambda: _savings(listings.ended_reports(since=since))),
        returns=call.slow("returns", client.returns).total,
        backlog_core_seconds=listings.backlog_core_seconds(),
        budgets=budgets,
        running=client.jobs.list(states=("running",), limit=20),
        events=listings.events(limit=_EVENTS_SHOWN),
    )


def _alerts(status: ServiceStatus, budgets: Sequence[Budget]) -> Sequence[Alert]:
    alerts = []
    if not status.workers:
        alerts.append(Alert(level="bad", message="no worker is running", link="/workers"))
    if status.scheduler is None:
        message = "no scheduler is running: nothing new is found or queued"
        alerts.append(Alert(level="bad", message=message, link="/workers"))
    for state, words in (
        ("held", "held after an error that no retry cures"),
        ("unreadable", "cannot be read"),
    ):
        if count := status.tables[state]:
            message = f"{count:,} {'table is' if count == 1 else 'tables are'} {words}"
            message = message.replace("is cannot", "cannot").replace("are cannot", "cannot")
            alerts.append(Alert(level="bad", message=message, link=f"/tables?state={state}"))
    if failed := status.jobs["failed"]:
        message = f"{failed:,} {'job has' if failed == 1 else 'jobs have'} failed in the last day"
        alerts.append(Alert(level="warn", message=message, link="/jobs?state=failed"))
    alerts += [
        Alert(level="warn", message=f"the budget {one.scope} is used up", link="/budgets")
        for one in budgets
        if one.left <= 0
    ]
    return alerts


def _savings(reports: Sequence[Mapping[str, Any]]) -> Savings:
    """Add up what reports say; a report of `maintain` has one of each step."""
    commits = saved = rewritten = 0
    for report in reports:
        steps = report.get("steps")
        parts = [one.get("report") or {} for one in steps] if isinstance(steps, list) else [report]
        for part in parts:
            before, after = part.get("files_removed"), part.get("files_added")
            if not isinstance(before, int) or not isinstance(after, int) or not before:
                continue
            commits += 1
            saved += max(0, before - after)
            rows = part.get("rows_written")
            rewritten += rows if isinstance(rows, int) else 0
    return Savings(commits=commits, files_saved=saved, rows_rewritten=rewritten)


OVERVIEW_ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/overview",
        view=show_overview,
        summary="How the service is doing, at a glance.",
        returns=Overview,
        template="overview.html",
        page="/",
    ),
)
