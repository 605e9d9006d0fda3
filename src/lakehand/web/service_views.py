"""The service as a whole, its policies, budgets, workers, events and tokens, for pages and API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from lakehand.errors import JobNotFoundError, ValidationError
from lakehand.model.quantities import parse_duration
from lakehand.service.client_values import JobEntry, PolicyCheck, SourceDiscovery
from lakehand.service.job_states import EVENT_KINDS
from lakehand.service.store.records import format_time
from lakehand.service.store.service_state import ServiceStatus
from lakehand.service.store.token_registry import AccessToken
from lakehand.service.windows import windows_of
from lakehand.web.endpoints import LIMIT, Call, Endpoint, Parameter, to_json
from lakehand.web.table_views import PauseRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from lakehand.service.config import Policy, SourceSection
    from lakehand.service.job_states import AccessRole
    from lakehand.service.returns import ReturnSummary
    from lakehand.service.store.budgets import Budget
    from lakehand.service.store.listings import Event
    from lakehand.service.store.worker_registry import Worker

_WEEK = timedelta(days=7)
#: Openings of windows that are looked for in a week.
_MAX_OPENINGS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTime:
    """A time in which jobs of a policy may run."""

    opens_at: float
    closes_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySummary:
    """A policy, and the times of the next seven days in which its jobs may run."""

    #: Name of the policy.
    name: str
    #: Patterns of the tables that it applies to.
    match: tuple[str, ...]
    #: How many tables have it.
    tables: int
    #: Whether these tables are maintained.
    enabled: bool
    #: Steps of maintenance that may run.
    steps: tuple[str, ...]
    #: Pool of its jobs.
    pool: str
    #: Settings that it sets.
    settings: Mapping[str, Any]
    #: Verbs by cron expression, and what that means.
    schedule: Mapping[str, str]
    #: When its jobs may run, from now to the end of the seven days.
    windows: tuple[WindowTime, ...]

    def to_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.__slots__ if name != "windows"}
        settings = {name: str(value) for name, value in self.settings.items()}
        windows = [
            {"opens_at": format_time(one.opens_at), "closes_at": format_time(one.closes_at)}
            for one in self.windows
        ]
        return {**own, "settings": settings, "windows": windows}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyList:
    """The policies of the configuration."""

    policies: Sequence[PolicySummary]
    #: Start of the seven days: the last midnight.
    starts_at: float
    #: Time zone of windows and schedules.
    time_zone: str
    #: Pools, by name: how many jobs run at once.
    pools: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        own = {"time_zone": self.time_zone, "pools": dict(self.pools)}
        starts_at = format_time(self.starts_at)
        return {"policies": to_json(list(self.policies)), "starts_at": starts_at, **own}


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetList:
    """The budgets of a day."""

    #: The day, in the time zone of the service.
    day: str
    #: The budgets.
    budgets: Sequence[Budget]
    #: What the jobs of the last days have cost and were worth.
    returns: ReturnSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerList:
    """The workers that are alive, the oldest first."""

    workers: Sequence[Worker]
    #: What each of them runs.
    running: Sequence[JobEntry]

    def to_json(self) -> dict[str, Any]:
        return {"workers": to_json(list(self.workers))}


@dataclass(frozen=True, kw_only=True, slots=True)
class EventList:
    """Events: the newest first, or those after a number, the oldest first."""

    events: Sequence[Event]
    #: Pass it as `before` for older ones; null: these are the last.
    next: int | None
    #: What the list was filtered by.
    filter: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"events": to_json(list(self.events)), "next": self.next}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceList:
    """Where tables are found."""

    sources: Sequence[SourceSection]

    def to_json(self) -> dict[str, Any]:
        names = ("name", "kind", "include", "exclude")
        return {"sources": [{n: getattr(one, n) for n in names} for one in self.sources]}


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenList:
    """Tokens of the HTTP server."""

    tokens: Sequence[AccessToken]


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token to create."""

    #: Name of the token.
    name: str
    #: `viewer`, `operator` or `admin`.
    role: str = "viewer"
    #: How long it is valid, such as `90 d`; default: until it is revoked.
    duration: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CreatedToken:
    """A new token."""

    #: The token.
    token: AccessToken
    #: What requests send. It is shown this once, and not stored.
    secret: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Something was asked for, and has been noted."""

    #: What.
    done: str


def show_status(call: Call) -> ServiceStatus:
    return call.client.service.status()


def list_policies(call: Call) -> PolicyList:
    config = call.client.config
    zone, now = config.service.time_zone, datetime.now(UTC)
    counts = call.client.listings.count_by_policy()
    return PolicyList(
        policies=[
            _policy(policy, zone, now, tables=counts.get(policy.name, 0))
            for policy in config.policies
        ],
        starts_at=_midnight(now, zone).timestamp(),
        time_zone=str(zone),
        pools={pool.name: pool.max_running for pool in config.pools},
    )


def _policy(policy: Policy, zone: ZoneInfo, now: datetime, *, tables: int) -> PolicySummary:
    return PolicySummary(
        name=policy.name,
        match=policy.match,
        tables=tables,
        enabled=policy.enabled,
        steps=policy.steps,
        pool=policy.pool,
        settings=dict(policy.settings),
        schedule={verb: at.explain() for verb, at in policy.schedule.items()},
        windows=tuple(_week(policy, zone, now)),
    )


def _midnight(now: datetime, zone: ZoneInfo) -> datetime:
    """Return the start of the day: the picture of a week has days as columns."""
    return now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)


def _week(policy: Policy, zone: ZoneInfo, now: datetime) -> Sequence[WindowTime]:
    windows, at, end = windows_of(policy, zone), now, _midnight(now, zone) + _WEEK
    found: list[WindowTime] = []
    for _ in range(_MAX_OPENINGS):
        opening = windows.next_opening(at)
        if opening is None or opening.opens_at >= end:
            break
        closes = min(opening.closes_at or end, end)
        found.append(
            WindowTime(opens_at=opening.opens_at.timestamp(), closes_at=closes.timestamp())
        )
        if closes >= end or closes <= at:
            break
        at = closes
    return found


def check_policies(call: Call) -> PolicyCheck:
    return call.client.policies.check()


def list_budgets(call: Call) -> BudgetList:
    day = call.text("day")
    if day is not None:
        try:
            datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError as error:
            raise ValidationError("day is written as 2026-01-31", field="day") from error
    zone = call.client.config.service.time_zone
    today = datetime.fromtimestamp(call.client.now(), zone).date().isoformat()
    return BudgetList(
        day=day or today,
        budgets=call.client.budgets(day),
        returns=call.slow("returns", call.client.returns),
    )


def list_workers(call: Call) -> WorkerList:
    running = call.client.jobs.list(states=("running",), limit=200)
    return WorkerList(workers=call.client.workers.list(), running=running)


def drain_worker(call: Call) -> Done:
    call.client.workers.drain(call.path["worker"])
    return Done(done="drain requested")


def stop_worker(call: Call) -> Done:
    call.client.workers.stop(call.path["worker"])
    return Done(done="stop requested")


def list_events(call: Call) -> EventList:
    kind, limit = call.text("kind", _KINDS), call.limit()
    after, before = call.number("after"), call.number("before")
    table, job = call.number("table"), call.number("job")
    found = call.client.listings.events(
        after=after,
        before=before,
        kinds=() if kind is None else (kind,),
        table_id=table,
        job_id=job,
        limit=limit,
    )
    is_full = after is None and len(found) == limit
    given = {"kind": kind, "table": table, "job": job}
    return EventList(events=found, next=found[-1].id if is_full else None, filter=given)


def list_sources(call: Call) -> SourceList:
    return SourceList(sources=call.client.config.sources)


def discover_source(call: Call) -> SourceDiscovery:
    name = call.path["source"]
    if name not in {source.name for source in call.client.config.sources}:
        raise JobNotFoundError(f"there is no source {name!r:.200}")
    return call.client.tables.discover(sources=[name])[0]


def pause_service(call: Call) -> ServiceStatus:
    pause = call.record(PauseRequest)
    call.client.service.pause(duration=pause.length(), why=pause.why)
    return call.client.service.status()


def resume_service(call: Call) -> ServiceStatus:
    call.client.service.resume()
    return call.client.service.status()


def drain_service(call: Call) -> WorkerList:
    return WorkerList(workers=call.client.service.drain(), running=())


def list_tokens(call: Call) -> TokenList:
    return TokenList(tokens=call.client.tokens.list())


def create_token(call: Call) -> CreatedToken:
    new = call.record(NewToken)
    try:
        duration = None if new.duration is None else parse_duration(new.duration)
    except (ValueError, OverflowError) as error:
        raise ValidationError(f"duration: {error}", field="duration") from error
    role = cast("AccessRole", new.role)
    token, secret = call.client.tokens.create(new.name, role, duration=duration)
    return CreatedToken(token=token, secret=secret)


def revoke_token(call: Call) -> AccessToken:
    return call.client.tokens.revoke(call.path["token"])


_KINDS = (*EVENT_KINDS, *sorted({f"{kind.partition('.')[0]}.*" for kind in EVENT_KINDS}))

SERVICE_ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/status",
        view=show_status,
        summary="Tables, jobs and workers, counted.",
        returns=ServiceStatus,
    ),
    Endpoint(
        method="GET",
        path="/policies",
        view=list_policies,
        summary="Policies, and when their jobs may run in the next seven days.",
        returns=PolicyList,
        template="policies.html",
    ),
    Endpoint(
        method="GET",
        path="/policies/check",
        view=check_policies,
        summary="The configuration, and how many tables each policy has.",
        returns=PolicyCheck,
    ),
    Endpoint(
        method="GET",
        path="/budgets",
        view=list_budgets,
        summary="What may be spent on a day, what was, and what that was worth.",
        returns=BudgetList,
        parameters=(Parameter(name="day", help="As 2026-01-31; default: today."),),
        template="budgets.html",
    ),
    Endpoint(
        method="GET",
        path="/workers",
        view=list_workers,
        summary="Workers that are alive.",
        returns=WorkerList,
        template="workers.html",
    ),
    Endpoint(
        method="POST",
        path="/workers/{worker}/drain",
        view=drain_worker,
        summary="Let a worker commit what is proved, and end.",
        returns=Done,
        role="admin",
        after_form="/workers",
    ),
    Endpoint(
        method="POST",
        path="/workers/{worker}/stop",
        view=stop_worker,
        summary="End a worker now; its jobs are queued again.",
        returns=Done,
        role="admin",
        after_form="/workers",
    ),
    Endpoint(
        method="GET",
        path="/events",
        view=list_events,
        summary="What happened.",
        returns=EventList,
        parameters=(
            Parameter(name="kind", help="As job.failed or job.*.", choices=_KINDS),
            Parameter(name="table", help="Number of a table.", kind="integer"),
            Parameter(name="job", help="Number of a job.", kind="integer"),
            Parameter(name="after", help="Only later ones, oldest first.", kind="integer"),
            Parameter(name="before", help="Only earlier ones.", kind="integer"),
            LIMIT,
        ),
        template="events.html",
    ),
    Endpoint(
        method="GET",
        path="/sources",
        view=list_sources,
        summary="Where tables are found.",
        returns=SourceList,
    ),
    Endpoint(
        method="POST",
        path="/sources/{source}/discover",
        view=discover_source,
        summary="List a source now, and register what it holds.",
        returns=SourceDiscovery,
        role="operator",
    ),
    Endpoint(
        method="POST",
        path="/service/pause",
        view=pause_service,
        summary="Start no jobs of any table. Running jobs continue.",
        returns=ServiceStatus,
        body=PauseRequest,
        role="admin",
        after_form="/",
    ),
    Endpoint(
        method="POST",
        path="/service/resume",
        view=resume_service,
        summary="Let jobs start again.",
        returns=ServiceStatus,
        role="admin",
        after_form="/",
    ),
    Endpoint(
        method="POST",
        path="/service/drain",
        view=drain_service,
        summary="Ask all workers to commit what is proved and end.",
        returns=WorkerList,
        role="admin",
    ),
    Endpoint(
        method="GET",
        path="/tokens",
        view=list_tokens,
        summary="Tokens, without the tokens themselves.",
        returns=TokenList,
        role="admin",
    ),
    Endpoint(
        method="POST",
        path="/tokens",
        view=create_token,
        summary="Create a token; the answer shows it once.",
        returns=CreatedToken,
        body=NewToken,
        role="admin",
        status=201,
    ),
    Endpoint(
        method="DELETE",
        path="/tokens/{token}",
        view=revoke_token,
        summary="Make a token invalid.",
        returns=AccessToken,
        role="admin",
    ),
)
