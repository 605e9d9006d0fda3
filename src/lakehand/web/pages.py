"""Pages: a record and its template. Templates escape everything, and have no scripts or styles."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from lakehand._version import __version__
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.service.job_states import EVENT_KINDS
from lakehand.service.store.listings import health_bucket
from lakehand.service.store.records import FOREVER
from lakehand.service.wait_words import describe_wait
from lakehand.web import pictures
from lakehand.web.middleware import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from lakehand.service.client_values import JobEntry
    from lakehand.sql.results import SqlResult
    from lakehand.web.access import Identity
    from lakehand.web.table_content import TableContent

#: Pages of the navigation.
PAGES = (
    ("/", "Overview"),
    ("/tables", "Tables"),
    ("/jobs", "Jobs"),
    ("/policies", "Policies"),
    ("/budgets", "Budgets"),
    ("/workers", "Workers"),
    ("/events", "Events"),
    ("/sql", "SQL"),
)
#: Statements that the page of SQL offers.
_EXAMPLES = (
    "SHOW TABLES",
    "SHOW JOBS",
    "SELECT verb, state, count(*) AS jobs FROM system.jobs GROUP BY ALL ORDER BY jobs DESC",
)
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
#: Where a kept page gets the name of who asks for it. Values of pages are escaped: none is this.
_USER_MARK = Markup("<!-- user -->")
#: Amounts of money below this are shown as nothing.
_LEAST_SHOWN = 0.00005
#: Rows of a statement that a page shows, and letters of a value.
_ROWS_SHOWN, _LONGEST_CELL = 200, 160
#: Shown where there is no value.
_NOTHING = "-"


class CachedStaticFiles(StaticFiles):
    """Files that change with the version of lakehand only, which their address has."""

    async def get_response(self, path: str, scope: Any) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["cache-control"] = "public, max-age=86400"
        return answer


def static_files() -> CachedStaticFiles:
    return CachedStaticFiles(directory=str(files("lakehand.web").joinpath("static")))


@functools.cache
def environment() -> Environment:
    """Return the templates, with their filters."""
    made = Environment(
        loader=PackageLoader("lakehand.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        bytes=lambda value: _NOTHING if value is None else format_bytes(value),
        number=lambda value: _NOTHING if value is None else f"{value:,}",
        counted=format_count,
        amount=_amount,
        seconds=format_seconds,
        moment=format_moment,
        ago=format_ago,
        health=health_bucket,
        cell=_cell,
        money=format_money,
        # Drawn by lakehand, which escapes the values that it shows.
        drawn=lambda svg: Markup(svg or ""),  # noqa: S704
        pretty=lambda value: json.dumps(value, indent=2, default=str, ensure_ascii=False),
        waits=_waits,
        words=lambda kind: kind.replace(".", " ").replace("_", " "),
        query=lambda values: urlencode({k: v for k, v in values.items() if v not in (None, "")}),
    )
    for name in pictures.__all__:
        made.globals[name] = getattr(pictures, name)
    made.globals.update(
        pages=PAGES,
        version=__version__,
        forever=FOREVER,
        event_kinds=" ".join(EVENT_KINDS),
        last_days=_last_days,
        report_phases=report_phases,
        report_forecast=report_forecast,
        examples=_EXAMPLES,
    )
    return made


def _amount(value: float, name: str) -> str:
    """Format a number of an explanation by what it counts."""
    if name.endswith("bytes"):
        return format_bytes(value)
    if name.endswith(("seconds", "time", "age")) or name.startswith("time"):
        return format_seconds(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _waits(entry: JobEntry, now: float) -> str:
    """Say in the words of the commands what a job waits for."""
    return describe_wait(entry.waits[0], now) if entry.waits else ""


def _last_days(starts_at: float, zone: str) -> list[str]:
    """Return the names of the seven days from a time on, in a time zone."""
    from zoneinfo import ZoneInfo

    first = datetime.fromtimestamp(starts_at, ZoneInfo(zone))
    return [(first + timedelta(days=day)).strftime("%a %d") for day in range(7)]


def _parts(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the reports of rewrites that a report has: itself, or those of its steps."""
    steps = report.get("steps")
    found = [step.get("report") for step in steps] if isinstance(steps, list) else [report]
    return [part for part in found if isinstance(part, dict) and "read_ms" in part]


def report_phases(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each phase that a report tells.

    >>> report_phases({"plan_ms": 1500.0, "read_ms": 0.0})
    {'plan': 1.5}
    """
    phases: dict[str, float] = {}
    for part in _parts(report):
        for phase in ("plan", "read", "write", "prove", "commit"):
            seconds = float(part.get(f"{phase}_ms") or 0.0) / 1000
            if seconds:
                phases[phase] = phases.get(phase, 0.0) + seconds
    return phases


def report_forecast(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what was expected of a rewrite, and what it was."""
    for part in _parts(report):
        forecast = part.get("forecast")
        if not isinstance(forecast, dict) or not part.get("files_removed"):
            continue
        spent = sum(float(part.get(f"{name}_ms") or 0.0) for name in ("read", "write", "prove"))
        return [
            ("Files after", f"{forecast['files_after']:,}", f"{part['files_after']:,}"),
            (
                "Size after",
                format_bytes(forecast["bytes_after"]),
                format_bytes(part["bytes_after"]),
            ),
            ("Task time", format_seconds(forecast["task_seconds"]), format_seconds(spent / 1000)),
        ]
    return []


def render_page(request: Request, template: str, record: Any, *, now: float) -> bytes:
    """Return a page that shows a record, for everyone with the same role: it lacks the name."""
    context = {"it": record, "now": now, **_context(request)}
    if context["user"] is not None:
        context["user"] = _USER_MARK
    return environment().get_template(template).render(context).encode()


def page_of(body: bytes, identity: Identity) -> Response:
    """Return a page with the name of who asks for it."""
    name = str(escape(identity.name)).encode()
    return HTMLResponse(body.replace(_USER_MARK.encode(), name))


def error_page(
    request: Request,
    error: Mapping[str, Any],
    status: int,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a page that shows an error and its hint."""
    context = {"error": error, "status": status, **_context(request)}
    text = environment().get_template("error.html").render(context)
    return HTMLResponse(text, status, headers)


def sql_page(
    request: Request,
    statement: str = "",
    *,
    result: SqlResult | None = None,
    error: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    """Return the page of a statement, with its rows, its report or its error."""
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    report = None
    if result is not None and result.rows is not None:
        columns = result.rows.column_names
        rows = replace(result, rows=result.rows.slice(0, _ROWS_SHOWN)).to_pylist()
    elif result is not None:
        report = result.to_json()["report"]
    context = {
        "statement": statement,
        "columns": columns,
        "rows": rows,
        "total": 0 if result is None or result.rows is None else result.rows.num_rows,
        "report": report,
        "result": result,
        "error": error,
        **_context(request),
    }
    return HTMLResponse(environment().get_template("sql.html").render(context), status)


def _cell(value: Any) -> str:
    """Return a value of a row, not too long for a page."""
    if value is None:
        return _NOTHING
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def login_page(request: Request, *, error: str | None, status: int = 200) -> Response:
    """Return the page that takes a token."""
    following = request.query_params.get("next", "/")
    context = {"error": error, "next": following, **_context(request)}
    return HTMLResponse(environment().get_template("login.html").render(context), status)


def _context(request: Request) -> dict[str, Any]:
    identity: Identity | None = request.scope.get(IDENTITY)
    query = request.url.query
    return {
        "user": shown_name(identity),
        "path": request.url.path,
        "address": request.url.path + (f"?{query}" if query else ""),
        "may_operate": identity is not None and identity.may("operator"),
        "may_administer": identity is not None and identity.may("admin"),
    }


def shown_name(identity: Identity | None) -> str | None:
    """Return the name that a page shows; None where everyone on this machine is the same."""
    return None if identity is None or identity.name == "web" else identity.name


def format_seconds(seconds: float | None) -> str:
    """Format a time span by its two largest units.

    >>> format_seconds(75.2), format_seconds(None)
    ('1 min 15 s', '-')
    """
    if seconds is None:
        return _NOTHING
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    return format_duration(timedelta(seconds=round(seconds)))


def format_money(amount: float) -> str:
    """Format an amount in the unit of the configured prices; small ones with more digits.

    >>> format_money(1234.5), format_money(-0.00123), format_money(0.000001)
    ('1,234.50', '-0.0012', '0.00')
    """
    if abs(amount) >= 1 or abs(amount) < _LEAST_SHOWN:
        return f"{amount:,.2f}".replace("-0.00", "0.00")
    return f"{amount:,.4f}"


def format_moment(at: float | datetime | None) -> Markup:
    """Format a time in UTC, for people and programs."""
    if at is None or (not isinstance(at, datetime) and at >= FOREVER):
        return Markup("-")
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    shown = moment.strftime("%Y-%m-%d %H:%M:%S")
    return Markup(f'<time datetime="{moment.isoformat()}">{shown}</time>')  # noqa: S704  a time


def format_ago(at: float | None, now: float) -> Markup:
    """Format a time as how long ago it was; the exact time is its title."""
    if at is None:
        return Markup("-")
    if at >= FOREVER:
        return Markup("without end")
    seconds = now - at
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s")):
        if abs(seconds) >= size:
            span = f"{abs(seconds) // size:.0f} {unit}"
            words = f"{span} ago" if seconds > 0 else f"in {span}"
            break
    else:
        words = "now"
    moment = datetime.fromtimestamp(at, UTC)
    exact = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    # A page has hundreds of these: no template, as nothing in it needs to be escaped.
    return Markup(  # noqa: S704  times only
        f'<time datetime="{moment.isoformat()}" title="{exact}">{words}</time>'
    )


def standalone_page(content: TableContent, picture: str | None = None) -> str:
    """Return the page of one table as one file that loads nothing."""
    inspection = content.inspection
    assert inspection is not None  # noqa: S101  the table was read
    style = files("lakehand.web").joinpath("static", "style.css").read_text()
    styles = [style, *re.findall("<style>(.*?)</style>", picture or "", re.DOTALL)]
    context = {
        # A browser takes just these styles, and no script.
        "hashes": Markup(" ").join(_style_hash(one) for one in styles),
        "it": content,
        "name": inspection.table.rstrip("/").rpartition("/")[2],
        # Both are lakehand's own: the picture escapes the values that it shows.
        "style": Markup(style),  # noqa: S704
        "picture": None if picture is None else Markup(picture),  # noqa: S704
        "address": "",
        "now": 0.0,
    }
    return environment().get_template("standalone.html").render(context)


def _style_hash(style: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Markup("'sha256-{}'").format(digest)
