"""`lakehand policies`: check the configuration, and show how a table is maintained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.screen import figures_grid
from lakehand.cli.service_options import (
    CommandGroup,
    format_seconds,
    listing,
    open_client,
    service_options,
    shown_location,
)
from lakehand.cli.settings import format_value
from lakehand.cli.shared_options import table_argument
from lakehand.errors import JobNotFoundError, JobStoreError
from lakehand.model.quantities import format_ago, format_bytes, format_count
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from lakehand.service.client_values import PolicyCheck, PolicyOfTable, SettingOrigin
    from lakehand.service.policy_simulation import Simulation


@click.group(cls=CommandGroup)
def policies() -> None:
    """Check the configuration file, and show which policy applies to a table."""


@policies.command("check")
@service_options
def check_policies(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Check the configuration file, and count the tables of each policy.

    An invalid file is an error that says what is wrong, and where. Nothing is changed.
    """
    from lakehand.service.client import find_client_config
    from lakehand.service.client_values import check_config

    loaded = find_client_config(config, store)
    try:
        with open_client(config, store) as client:
            found = client.policies.check()
    except JobStoreError:
        found = check_config(loaded)  # A file can be checked before there is a job store.
    if as_json:
        print_document(found.to_json())
    else:
        print_screen(*check_screen(found))


def check_screen(found: PolicyCheck) -> Iterable[RenderableType]:
    """Show that a file is valid, and what it says."""
    yield Text.assemble((f"{found.path}", "bold"), ": ", ("valid", "green"))
    yield figures_grid(_check_rows(found))


def _check_rows(found: PolicyCheck) -> Iterator[tuple[str, str]]:
    yield "sources", ", ".join(found.sources) or "none: tables are added by hand"
    yield "pools", ", ".join(found.pools)
    label = "policies"
    for name in found.policies:
        if found.tables is None:
            yield label, name
        else:
            yield label, f"{name}: {format_count(found.tables[name], 'table')}"
        label = ""


@policies.command("show")
@table_argument
@click.option("--all", "is_all", is_flag=True, help="Also settings that have their default.")
@service_options
def show_policy(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    is_all: bool,  # noqa: FBT001
) -> None:
    """Show which policy applies to TABLE, and the value and origin of every setting.

    TABLE is a registered table, or the path or URL of any table.
    """
    found = _policy_of(config, store, table)
    if as_json:
        print_document(found.to_json())
    else:
        print_screen(*policy_screen(found, is_all=is_all))


@policies.command("simulate")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
    help="Show at most N jobs.",
)  # fmt: skip
@service_options
def simulate_policies(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    file: Path,
    limit: int,
) -> None:
    """Show what the configuration FILE would do with the registered tables, and what it would cost.

    The tables are assessed by their logs, as of now; nothing is queued or changed. The totals
    are compared with those of the present configuration.
    """
    with open_client(config, store) as client:
        found = client.policies.simulate(file)
        present = client.policies.simulate(client.config)
        now = client.now()
    if as_json:
        print_document({**found.to_json(), "present_totals": present.totals()})
    else:
        print_screen(*simulation_screen(found, present, now, limit=limit))


def simulation_screen(
    found: Simulation, present: Simulation, now: float, *, limit: int
) -> Iterable[RenderableType]:
    """Show totals against those of today, then the jobs."""
    headings = ("", "jobs", "bytes", "files", "core time", "cost")
    totals = listing(*headings, right=headings[1:])
    for label, one in (("this file", found.totals()), ("now", present.totals())):
        amounts = (format_bytes(one["bytes"]), f"{one['files']:,.0f}")
        spent = (format_seconds(one["core_seconds"]), f"{one['cost']:,.2f}")
        totals.add_row(label, f"{one['jobs']:,.0f}", *amounts, *spent)
    yield totals
    grid = listing("starts", "table", "policy", "steps", "bytes", "core time", "score",
                   right=("bytes", "core time", "score"), fold=("table",))  # fmt: skip
    for job in found.jobs[:limit]:
        grid.add_row(
            "never" if job.starts_at is None else format_ago(job.starts_at, now),
            Text(shown_location(job.table)),
            Text(job.policy),
            ", ".join(step.replace("_", "-") for step in job.steps),
            format_bytes(job.bytes),
            format_seconds(round(job.core_seconds, 1)),
            f"{job.score:,.1f}",
        )
    yield grid
    if len(found.jobs) > limit:
        yield Text(f"{limit:,} of {len(found.jobs):,} jobs; --limit shows more", style="dim")
    if found.skipped:
        tables = format_count(len(found.skipped), "table")
        yield Text(f"{tables} not assessed; --json says why", style="dim")


def _policy_of(config: Path | None, store: str | None, table: str) -> PolicyOfTable:
    from lakehand.service.client import find_client_config
    from lakehand.service.client_values import policy_of_table

    try:
        with open_client(config, store) as client:
            return client.policies.show(table)
    except (JobNotFoundError, JobStoreError):
        if "/" not in table:
            raise
    loaded = find_client_config(config, store)
    url = path_to_url(table)
    name = url.rsplit("/", 1)[-1].removesuffix(".lance")
    return policy_of_table(loaded, url, name, {})


def policy_screen(found: PolicyOfTable, *, is_all: bool) -> Iterable[RenderableType]:
    """Show the policy, then the settings."""
    yield Text(shown_location(found.url), style="bold", overflow="fold")
    yield figures_grid(_policy_rows(found))
    yield from settings_screen(found.settings, is_all=is_all)
    if found.unread is not None:
        reason = f"the properties of the table could not be read: {found.unread}"
        yield Text(reason, style="yellow")


def settings_screen(settings: Sequence[SettingOrigin], *, is_all: bool) -> Iterator[RenderableType]:
    """Show settings with the places that they came from; defaults only if all are wanted."""
    shown = [one for one in settings if is_all or one.source != "default"]
    if shown:
        grid = listing("setting", "value", "from", fold=("setting", "value", "from"))
        for one in shown:
            grid.add_row(Text(one.name), Text(format_value(one.value, one.name)), Text(one.source))
        yield grid
    rest = len(settings) - len(shown)
    if rest:
        yield Text(f"default: {format_count(rest, 'other setting')}; --all shows them", style="dim")


def _policy_rows(found: PolicyOfTable) -> Iterator[tuple[str, str]]:
    policy = found.policy
    state = "" if policy.enabled else "; disabled: nothing is maintained"
    yield "policy", f"{policy.name}, matches {', '.join(policy.match)}{state}"
    yield "steps", ", ".join(step.replace("_", "-") for step in policy.steps)
    for verb, schedule in policy.schedule.items():
        yield "schedule", f"{verb.replace('_', '-')}: {schedule.expression} ({schedule.explain()})"
    yield "pool", policy.pool
