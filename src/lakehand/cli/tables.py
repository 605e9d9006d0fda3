"""`lakehand tables`: the tables that the service maintains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.budgets import budgets_screen
from lakehand.cli.jobs import describe_result, jobs_screen
from lakehand.cli.output import print_document, print_list, print_screen
from lakehand.cli.policies import settings_screen
from lakehand.cli.screen import figures_grid
from lakehand.cli.service_options import (
    CommandGroup,
    format_moment,
    format_pause,
    format_seconds,
    listing,
    open_client,
    pause_options,
    service_options,
    shown_location,
)
from lakehand.cli.shared_options import table_argument
from lakehand.errors import EXIT_FAILED
from lakehand.model.quantities import format_ago, format_bytes, format_count
from lakehand.service.wait_words import describe_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.service.client import ServiceClient
    from lakehand.service.client_values import JobEntry, SourceDiscovery, TableEntry
    from lakehand.service.returns import JobReturn
    from lakehand.service.table_explanation import Explanation, Ratio, WindowState

#: Colour of each state.
STATE_STYLES = {
    "ok": "green",
    "paused": "yellow",
    "held": "red",
    "unreadable": "red",
    "gone": "dim",
}
_OBSTACLES = {
    "disabled": "disabled",
    "gone": "gone",
    "table_paused": "paused",
    "service_paused": "service paused",
    "unreadable": "unreadable",
    "held": "held",
}
#: From this ratio on something is due.
_DUE = 1.0
_EMPTY = (
    "No tables yet.\n"
    "  lakehand tables add URL     registers one\n"
    "  lakehand tables discover    registers all tables of the [[source]] sections\n"
    "  lakehand serve              finds and maintains them automatically"
)


@click.group(cls=CommandGroup)
def tables() -> None:
    """Show and change the tables that the service maintains.

    TABLE is the name, URL, path or id of a table, as `lakehand tables list` shows them. No command
    here deletes data.
    """


@tables.command("list")
@click.option("--source", metavar="NAME", help="Only tables that this source has found.")
@click.option("--gone", is_flag=True, help="Also tables that are gone or were removed.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, metavar="N",
    help="Show at most N tables.",
)  # fmt: skip
@service_options
def list_tables(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    source: str | None,
    gone: bool,  # noqa: FBT001
    limit: int,
) -> None:
    """Show the tables, in the order in which they were registered."""
    with open_client(config, store) as client:
        found = client.tables.list(source=source, gone=gone, limit=limit)
        total = client.tables.count()
        now = client.now()
    if as_json:
        print_document({"tables": [entry.to_json() for entry in found], "total": total})
    elif not found:
        print_screen(Text(_EMPTY))
    else:
        print_list(*tables_screen(found, total, now))


def tables_screen(
    entries: Sequence[TableEntry], total: int, now: float
) -> Iterable[RenderableType]:
    """Show one line per table."""
    grid = listing(
        "id", "name", "state", "policy", "version", "checked", "location",
        right=("id", "version"), fold=("name", "location"),
    )  # fmt: skip
    for entry in entries:
        table = entry.table
        grid.add_row(
            str(table.id),
            Text(table.name or "-"),
            Text(entry.state, style=STATE_STYLES[entry.state]),
            Text(entry.policy),
            "-" if table.version is None else f"{table.version:,}",
            format_ago(table.assessed_at, now),
            Text(shown_location(table.url)),
        )
    yield grid
    if total > len(entries):
        yield Text(f"{len(entries):,} of {total:,} tables; --limit shows more", style="dim")


@tables.command("add")
@click.argument("url", metavar="URL")
@click.option("--name", metavar="NAME", help="Name of the table. Default: its directory's.")
@service_options
def add_table(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    url: str,
    name: str | None,
) -> None:
    """Register the table at URL, a path or URL, with the service. The table must exist."""
    with open_client(config, store, create=True) as client:
        entry, is_new = client.tables.add(url, name=name)
    if as_json:
        print_document({**entry.to_json(), "is_new": is_new})
        return
    what = "added" if is_new else "already registered"
    print_screen(Text(f"{_label(entry)}: {what}; its policy is {entry.policy}"))


@tables.command("remove")
@table_argument
@service_options
def remove_table(config: Path | None, store: str | None, as_json: bool, table: str) -> None:  # noqa: FBT001
    """Stop maintaining TABLE. Its data is not deleted.

    Its queued jobs are cancelled; the history of its jobs stays. Its source does not bring it back:
    `lakehand tables add` does.
    """
    with open_client(config, store) as client:
        entry = client.tables.remove(table)
    message = "no longer maintained; no data was deleted"
    _print_entry(entry, message, as_json=as_json)


@tables.command("show")
@table_argument
@service_options
def show_table(config: Path | None, store: str | None, as_json: bool, table: str) -> None:  # noqa: FBT001
    """Show TABLE: state, policy, overridden settings, latest jobs."""
    with open_client(config, store) as client:
        entry = client.tables.show(table)
        jobs = client.jobs.list(table=str(entry.table.id), limit=5)
        now = client.now()
    if as_json:
        print_document({**entry.to_json(), "jobs": [job.to_json() for job in jobs]})
    else:
        print_screen(*table_screen(entry, jobs, now))


def table_screen(
    entry: TableEntry, jobs: Sequence[JobEntry], now: float
) -> Iterable[RenderableType]:
    """Show everything of one table."""
    yield Text(_label(entry), style="bold")
    yield figures_grid(_table_rows(entry, now))
    if jobs:
        yield Text("latest jobs", style="dim")
        yield from jobs_screen(jobs, now)
    else:
        name = entry.table.name or entry.table.url
        yield Text(f"No jobs yet: lakehand jobs submit {name} asks for one", style="dim")


def _table_rows(entry: TableEntry, now: float) -> Iterator[tuple[str, str]]:
    table = entry.table
    yield "state", _describe_state(entry)
    yield "location", shown_location(table.url)
    yield "format", table.format or "not known yet"
    yield "policy", f"{entry.policy}; details: lakehand policies show {table.name or table.id}"
    yield "found", f"{format_ago(table.found_at, now)}, by {table.source}"
    if table.version is not None:
        commits = f"{format_count(table.commits_since, 'commit')} since it was last maintained"
        yield "version", f"{table.version:,}; {commits}"
    yield "checked", format_ago(table.assessed_at, now)
    label = "own settings"
    for name, value in table.overrides.items():
        yield label, f"{name} = {value}"
        label = ""
    for verb, error in entry.held.items():
        yield "held", f"{verb}: {error.get('message')}"
    if table.last_error is not None:
        yield "error", str(table.last_error.get("message"))


def _describe_state(entry: TableEntry) -> str:
    table = entry.table
    match entry.state:
        case "paused" if table.paused_until is not None:
            return format_pause(table.paused_until, table.paused_by, table.paused_why)
        case "held":
            return "held: a job failed in a way that no retry cures; resume it when it is fixed"
        case "gone" if table.source == "removed":
            return "removed; its data was not deleted"
    return entry.state


@tables.command("explain")
@table_argument
@click.option("--all", "is_all", is_flag=True, help="Also settings that have their default.")
@service_options
def explain_table(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    is_all: bool,  # noqa: FBT001
) -> None:
    """Explain why TABLE is maintained or not, and what its jobs wait for.

    Shows the policy and why it applies, each measured value with its threshold, windows, budgets
    and waiting jobs, and where each setting comes from. Reads the log of the table, but no data
    file.
    """
    with open_client(config, store) as client:
        found = client.tables.explain(table)
        now = client.now()
    if as_json:
        print_document(found.to_json())
    else:
        print_screen(*explain_screen(found, now, is_all=is_all))


def explain_screen(
    found: Explanation, now: float, *, is_all: bool = False
) -> Iterable[RenderableType]:
    """Show policy and obstacles, ratios, budgets, jobs, and settings with their places."""
    table = found.table.table
    yield Text(table.name or table.url, style="bold")
    yield figures_grid(_explain_rows(found, now))
    yield _ratios(found.ratios)
    if found.budgets:
        yield Text("budgets of today", style="dim")
        yield from budgets_screen(found.budgets)
    if found.returns:
        yield Text("return of the last jobs", style="dim")
        yield _returns(found.returns)
    if found.jobs:
        yield Text("jobs", style="dim")
        yield figures_grid(row for entry in found.jobs for row in _job_rows(entry, now))
    yield Text("settings", style="dim")
    yield from settings_screen(found.settings, is_all=is_all)


def _explain_rows(found: Explanation, now: float) -> Iterator[tuple[str, str]]:
    table, choice = found.table.table, found.choice
    why = "no pattern matches" if choice.pattern is None else f"because of {choice.pattern}"
    yield "policy", f"{choice.policy}, {why}"
    for other in choice.others:
        yield "", f"also matches, but says less: {other}"
    for kind, text in found.obstacles:
        yield _OBSTACLES[kind], text
    if found.score is not None:
        yield "score", f"{found.score:,.1f}"
    for reason in found.reasons:
        yield "due", reason
    if found.raised > 1:
        why = "its last rewrites cost more than they saved"
        yield "thresholds", f"raised {found.raised:g} times: {why}"
    yield "window", _describe_window(found.window, now)
    yield "next look", format_ago(table.look_at, now)
    if found.unread is not None:
        yield "not read", found.unread


def _returns(returns: Iterable[JobReturn]) -> RenderableType:
    headings = ("job", "verb", "core time", "bytes", "cost", "files saved", "bytes saved", "days",
                "benefit", "return")  # fmt: skip
    grid = listing(*headings, right=("job", *headings[2:]))
    for one in returns:
        grid.add_row(
            str(one.job),
            one.verb,
            format_seconds(round(one.core_seconds, 1)),
            format_bytes(one.bytes),
            f"{one.cost:,.4f}",
            f"{one.files_saved:,}",
            format_bytes(max(0, one.bytes_saved)),
            f"{one.days:,.1f}{' so far' if one.is_open else ''}",
            f"{one.benefit:,.4f}",
            Text(f"{one.value:,.4f}", style="red" if one.value < 0 else "green"),
        )
    return grid


def _describe_window(window: WindowState, now: float) -> str:
    closes = "" if window.closes_at is None else f", closes {_when(window.closes_at, now)}"
    if window.is_open:
        return f"open{closes}" if closes else "open at all times"
    if window.opens_at is None:
        return "never open"
    return f"opens {_when(window.opens_at, now)}{closes}"


def _when(at: float, now: float) -> str:
    return f"{format_ago(at, now)} ({format_moment(at)})"


def _ratios(ratios: Iterable[Ratio]) -> RenderableType:
    headings = ("what", "of", "value", "threshold", "ratio", "setting")
    grid = listing(*headings, right=headings[2:5], fold=("setting",))
    for one in ratios:
        is_due = one.ratio >= _DUE
        grid.add_row(
            Text(one.name.replace("_", " ")),
            one.of,
            _format_value(one.value, one.name),
            _format_value(one.threshold, one.name),
            Text(f"{one.ratio:.2f}{', due' if is_due else ''}", style="yellow" if is_due else ""),
            Text(one.setting),
        )
    return grid


def _format_value(value: float, name: str) -> str:
    if name == "bytes":
        return format_bytes(value)
    if name == "time":
        return format_seconds(round(value))
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _job_rows(entry: JobEntry, now: float) -> Iterator[tuple[str, str]]:
    job = entry.job
    what = f"{job.verb.replace('_', '-')}, {job.state}"
    score = f", score {job.score:,.1f}" if job.score else ""
    yield f"job {job.id}", f"{what}{score}: {describe_result(entry, now)}"
    for wait in entry.waits[1:]:
        yield "", f"and {describe_wait(wait, now)}"


@tables.command("pause")
@table_argument
@pause_options
@service_options
def pause_table(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    duration: timedelta | None,
    why: str | None,
) -> None:
    """Start no jobs of TABLE. Running jobs continue."""
    with open_client(config, store) as client:
        entry = client.tables.pause(table, duration=duration, why=why)
    _print_entry(entry, _describe_state(entry), as_json=as_json)


@tables.command("resume")
@table_argument
@service_options
def resume_table(config: Path | None, store: str | None, as_json: bool, table: str) -> None:  # noqa: FBT001
    """Let jobs of TABLE start again, including held ones."""
    with open_client(config, store) as client:
        entry = client.tables.resume(table)
    _print_entry(entry, "resumed", as_json=as_json)


@tables.command("set")
@table_argument
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@service_options
def set_settings(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    settings: tuple[str, ...],
) -> None:
    """Override settings for TABLE, above its properties and its policy."""
    given = dict(_split(pair) for pair in settings)
    with open_client(config, store) as client:
        entry = client.tables.set(table, **given)
    _print_entry(entry, f"own settings: {_overrides(entry)}", as_json=as_json)


@tables.command("reset")
@table_argument
@click.argument("settings", nargs=-1, metavar="[SETTING]...")
@service_options
def reset_settings(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    settings: tuple[str, ...],
) -> None:
    """Remove settings that `set` gave to TABLE; without names, all of them."""
    with open_client(config, store) as client:
        entry = client.tables.reset(table, *settings)
    _print_entry(entry, f"own settings: {_overrides(entry)}", as_json=as_json)


@tables.command("discover")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source.")
@click.option("--dry-run", is_flag=True, help="Show what would be found; register nothing.")
@service_options
def discover_tables(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    sources: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001
) -> int:
    """List the sources of the configuration file now, and register their tables."""
    with _client_for_discovery(config, store, dry_run=dry_run) as client:
        found = client.tables.discover(sources=sources, dry_run=dry_run)
    if as_json:
        print_document({"sources": [one.to_json() for one in found], "dry_run": dry_run})
    else:
        print_list(*discovery_screen(found, dry_run=dry_run))
    return EXIT_FAILED if any(one.errors for one in found) else 0


def _client_for_discovery(
    config: Path | None, store: str | None, *, dry_run: bool
) -> ServiceClient:
    """Open the service; a dry run without a job store makes none."""
    from lakehand.service.client import find_client_config
    from lakehand.service.client_stores import is_store_missing

    loaded = find_client_config(config, store)
    if dry_run and is_store_missing(loaded):
        return open_client(config, "sqlite://", create=True)
    return open_client(config, store, create=not dry_run)


def discovery_screen(
    found: Sequence[SourceDiscovery], *, dry_run: bool
) -> Iterable[RenderableType]:
    """Show one line per source, and what could not be listed."""
    grid = listing("source", "found", "new", "gone", right=("found", "new", "gone"))
    for one in found:
        grid.add_row(Text(one.source), f"{one.found:,}", f"{one.new:,}", f"{one.gone:,}")
    yield grid
    for one in found:
        for error in one.errors:
            message = f"{error['url']}: {error['message']}; its tables are not marked as gone"
            yield Text.assemble(("not listed: ", "red"), message)
    if dry_run:
        yield Text("nothing was registered", style="dim")


def _split(pair: str) -> tuple[str, Any]:
    name, separator, value = pair.partition("=")
    if not (name and separator):
        raise click.BadParameter(f"{pair!r}: write it as SETTING=VALUE")
    return name, value


def changed_table_screen(entry: TableEntry, _now: float) -> Iterable[RenderableType]:
    """Show in one line what may have changed: the state of a table and its own settings."""
    yield Text(f"{_label(entry)}: {_describe_state(entry)}; own settings: {_overrides(entry)}")


def _overrides(entry: TableEntry) -> str:
    return ", ".join(f"{key} = {value}" for key, value in entry.table.overrides.items()) or "none"


def _label(entry: TableEntry) -> str:
    return entry.table.name or shown_location(entry.table.url)


def _print_entry(entry: TableEntry, message: str, *, as_json: bool) -> None:
    if as_json:
        print_document(entry.to_json())
    else:
        print_screen(Text(f"{_label(entry)}: {message}"))
