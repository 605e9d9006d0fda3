"""The tables, for pages and the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from lakehand.errors import ValidationError
from lakehand.model.order import column_names
from lakehand.model.quantities import parse_duration
from lakehand.service.client_values import JobEntry, PolicyOfTable, TableEntry
from lakehand.service.job_specs import storage_options
from lakehand.service.store.listings import Area, Event, Measurement, TableFilter
from lakehand.service.table_explanation import Explanation
from lakehand.web.endpoints import LIMIT, Call, Endpoint, Parameter, to_json
from lakehand.web.table_content import TableContent, read_for_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from lakehand.service.store.listings import TableSort

TABLE_STATES = ("paused", "held", "unreadable", "gone")
HEALTH_WORDS = ("good", "fair", "poor", "unknown")
SORTS = ("name", "health", "bytes", "id")
#: Tables that the picture of all tables shows one by one.
_AREAS = 120
_JOBS_SHOWN, _EVENTS_SHOWN = 10, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Treemap:
    """The largest tables, by size and health."""

    areas: Sequence[Area]
    #: Bytes of all tables that are not among them.
    other_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TableList:
    """Some of the tables."""

    #: The tables.
    tables: Sequence[TableEntry]
    #: How many fit the filter.
    total: int
    #: Pass it as `after` for the next ones; null: these are the last.
    next: str | None
    #: What the list was filtered by.
    filter: TableFilter
    #: For the picture.
    treemap: Treemap | None = None
    #: Values of the filters, by name.
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"tables": to_json(list(self.tables)), "total": self.total, "next": self.next}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDetails:
    """One table: what the service knows, and what its log says."""

    #: The table.
    table: TableEntry
    #: Its health and its files over time.
    measurements: Sequence[Measurement]
    #: Its newest jobs.
    jobs: Sequence[JobEntry]
    #: What happened to it.
    events: Sequence[Event]
    #: What its log says now.
    content: TableContent

    def to_json(self) -> dict[str, Any]:
        names = ("measurements", "jobs", "events", "content")
        return {**self.table.to_json(), **{name: to_json(getattr(self, name)) for name in names}}


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementList:
    """Measurements of a table, the oldest first."""

    measurements: Sequence[Measurement]


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTable:
    """A table to register."""

    #: Its path or URL.
    url: str
    #: Its name; default: the last part of the URL.
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseRequest:
    """How long something is paused, and why."""

    #: Such as `2h`; default: until it is resumed.
    duration: str | None = None
    #: Shown to others.
    why: str | None = None

    def length(self) -> timedelta | None:
        if self.duration is None:
            return None
        try:
            return parse_duration(self.duration)
        except (ValueError, OverflowError) as error:
            raise ValidationError(f"duration: {error}", field="duration") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsChange:
    """Settings of a table, above its properties and its policy."""

    #: Values by name.
    set: Mapping[str, Any] = field(default_factory=dict)
    #: Names of those that are removed.
    reset: Sequence[str] = ()


def _filter(call: Call) -> TableFilter:
    sort = cast("TableSort", call.text("sort", SORTS) or "name")
    return TableFilter(
        search=call.text("q"),
        source=call.text("source"),
        policy=call.text("policy"),
        format=call.text("format"),
        state=call.text("state", TABLE_STATES),
        health=call.text("health", HEALTH_WORDS),
        sort=sort,
    )


def list_tables(call: Call) -> TableList:
    wanted, listings = _filter(call), call.client.listings
    found, following = call.client.tables.page(wanted, limit=call.limit(), after=call.text("after"))
    total = listings.count_tables(wanted)
    if not call.is_page:
        return TableList(tables=found, total=total, next=following, filter=wanted)
    areas, others = listings.areas(wanted, limit=_AREAS)
    return TableList(
        tables=found,
        total=total,
        next=following,
        filter=wanted,
        treemap=Treemap(areas=areas, other_bytes=others),
        choices={
            "source": listings.names_of("source"),
            "policy": listings.names_of("policy"),
            "format": listings.names_of("format"),
            "state": TABLE_STATES,
            "health": HEALTH_WORDS,
            "sort": SORTS,
        },
    )


def show_table(call: Call) -> TableDetails:
    entry = call.client.tables.show(call.path["table"])
    number = str(entry.table.id)
    return TableDetails(
        table=entry,
        measurements=call.client.listings.measurements(entry.table.id),
        jobs=call.client.jobs.list(table=number, limit=_JOBS_SHOWN),
        events=call.client.listings.events(table_id=entry.table.id, limit=_EVENTS_SHOWN),
        content=_read(call, entry),
    )


def _read(call: Call, entry: TableEntry) -> TableContent:
    """Read the log of a table, in another thread; a table that is gone is not read."""
    if entry.table.gone_at is not None:
        return TableContent()
    url, config = entry.table.url, call.client.config
    by = column_names(call.text("by") or "")

    def work() -> TableContent:
        from lakehand.table import open_table

        opened = open_table(url, storage_options=storage_options(config, url))
        explanation = call.client.tables.explain(str(entry.table.id))
        return read_for_page(opened, explanation=explanation, by=by)

    return call.reader.read((url, entry.table.version, by), work)


def list_measurements(call: Call) -> MeasurementList:
    entry = call.client.tables.show(call.path["table"])
    limit = call.limit(500)
    return MeasurementList(
        measurements=call.client.listings.measurements(entry.table.id, limit=limit)
    )


def show_policy(call: Call) -> PolicyOfTable:
    return call.client.policies.show(call.path["table"])


def explain_table(call: Call) -> Explanation:
    return call.client.tables.explain(call.path["table"])


def add_table(call: Call) -> TableEntry:
    new = call.record(NewTable)
    return call.client.tables.add(new.url, name=new.name)[0]


def remove_table(call: Call) -> TableEntry:
    return call.client.tables.remove(call.path["table"])


def pause_table(call: Call) -> TableEntry:
    pause = call.record(PauseRequest)
    return call.client.tables.pause(call.path["table"], duration=pause.length(), why=pause.why)


def resume_table(call: Call) -> TableEntry:
    return call.client.tables.resume(call.path["table"])


def change_settings(call: Call) -> TableEntry:
    change = call.record(SettingsChange)
    table = call.path["table"]
    if not all(isinstance(name, str) for name in change.reset):
        raise ValidationError("reset is a list of names of settings", field="reset")
    if change.reset:
        call.client.tables.reset(table, *change.reset)
    if change.set:
        if "table" in change.set:  # The name of an argument, and of no setting.
            raise ValidationError("there is no setting 'table'", field="set")
        call.client.tables.set(table, **change.set)
    return call.client.tables.show(table)


TABLE_FILTERS = (
    Parameter(name="q", help="Part of the name or the URL."),
    Parameter(name="source", help="Name of the source."),
    Parameter(name="policy", help="Name of the policy."),
    Parameter(name="format", help="delta or lance."),
    Parameter(name="state", help="Only tables in this state.", choices=TABLE_STATES),
    Parameter(name="health", help="Good: 90 and more; poor: below 60.", choices=HEALTH_WORDS),
    Parameter(name="sort", help="Order; health: the worst first.", choices=SORTS),
    Parameter(name="after", help="`next` of the answer before."),
    LIMIT,
)

TABLE_ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/tables",
        view=list_tables,
        summary="Tables that the service maintains.",
        returns=TableList,
        parameters=TABLE_FILTERS,
        template="tables.html",
    ),
    Endpoint(
        method="POST",
        path="/tables",
        view=add_table,
        summary="Register a table.",
        returns=TableEntry,
        body=NewTable,
        role="admin",
        status=201,
        after_form="/tables/{id}",
    ),
    Endpoint(
        method="GET",
        path="/tables/{table}",
        view=show_table,
        summary="One table, by its number or name.",
        returns=TableDetails,
        parameters=(Parameter(name="by", help="Two columns of the picture, as `day,customer`."),),
        template="table.html",
    ),
    Endpoint(
        method="PATCH",
        path="/tables/{table}",
        view=change_settings,
        summary="Set and remove settings of a table, above its policy.",
        returns=TableEntry,
        body=SettingsChange,
        role="operator",
    ),
    Endpoint(
        method="DELETE",
        path="/tables/{table}",
        view=remove_table,
        summary="Stop maintaining a table. Its data and its history stay.",
        returns=TableEntry,
        role="admin",
    ),
    Endpoint(
        method="GET",
        path="/tables/{table}/policy",
        view=show_policy,
        summary="The policy of a table, and where each setting comes from.",
        returns=PolicyOfTable,
    ),
    Endpoint(
        method="GET",
        path="/tables/{table}/explain",
        view=explain_table,
        summary="Why a table is maintained or not, and what its jobs wait for.",
        returns=Explanation,
    ),
    Endpoint(
        method="GET",
        path="/tables/{table}/measurements",
        view=list_measurements,
        summary="Health and files of a table over time.",
        returns=MeasurementList,
        parameters=(LIMIT,),
    ),
    Endpoint(
        method="POST",
        path="/tables/{table}/pause",
        view=pause_table,
        summary="Start no jobs of a table. Running jobs continue.",
        returns=TableEntry,
        body=PauseRequest,
        role="operator",
        after_form="/tables/{table}",
    ),
    Endpoint(
        method="POST",
        path="/tables/{table}/resume",
        view=resume_table,
        summary="Let jobs of a table start again, of held verbs as well.",
        returns=TableEntry,
        role="operator",
        after_form="/tables/{table}",
    ),
)
