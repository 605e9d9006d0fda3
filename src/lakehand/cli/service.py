"""`lakehand service`: the service as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_lines, print_screen
from lakehand.cli.screen import figures_grid
from lakehand.cli.service_options import (
    CommandGroup,
    format_pause,
    format_seconds,
    open_client,
    pause_options,
    service_options,
)
from lakehand.cli.service_tokens import token
from lakehand.cli.shared_options import json_option, logging_options
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from rich.console import RenderableType

    from lakehand.service.store.service_state import ServiceStatus


@click.group(cls=CommandGroup)
def service() -> None:
    """Configure, watch and pause the service that `lakehand serve` runs."""


@service.command("init")
@click.argument("include", nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default="lakehand.toml",
    show_default=True,
    metavar="FILE",
    help="File to write.",
)
@click.option("--store", metavar="URL", help="Job store to write into the file.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
@logging_options
def init_service(
    include: tuple[str, ...],
    config: Path,
    store: str | None,
    force: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Write a configuration file with every key, its default and its meaning.

    Each PATTERN is a table, a directory of tables, or a pattern such as 's3://lake/**'.
    """
    from lakehand.service.config_template import write_config

    write_config(config, include=include, store=store, force=force)
    if as_json:
        print_document({"config": str(config), "include": list(include)})
        return
    step = "lakehand tables discover" if include else "edit [[source]], or lakehand tables add URL"
    print_screen(Text(f"{config} written. Next:\n  {step}\n  lakehand serve"))


@service.command("status")
@service_options
def service_status(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show a summary of tables, jobs and workers."""
    with open_client(config, store) as client:
        found = client.service.status()
    if as_json:
        print_document(found.to_json())
    else:
        print_screen(*status_screen(found))


def status_screen(found: ServiceStatus) -> Iterable[RenderableType]:
    """Show the state of the service in a few lines."""
    yield _headline(found)
    yield figures_grid(_status_rows(found))


def _headline(found: ServiceStatus) -> Text:
    if found.pause is not None:
        pause = found.pause
        words = format_pause(pause.paused_until, pause.paused_by, pause.paused_why)
        return Text.assemble(("service: ", "bold"), (words, "yellow"))
    if not found.workers:
        return Text.assemble(
            ("service: ", "bold"), ("not running", "red"), "; start lakehand serve"
        )
    return Text.assemble(("service: ", "bold"), ("running", "green"))


def _status_rows(found: ServiceStatus) -> Iterator[tuple[str, str]]:
    yield "store", found.store
    special = [
        f"{count:,} {name}" for name, count in found.tables.items() if count and name != "total"
    ]
    yield "tables", f"{found.tables['total']:,}" + (f" ({', '.join(special)})" if special else "")
    if found.tables["total"] == 0:
        yield "", "lakehand tables add URL registers one, tables discover those of the sources"
    oldest = found.oldest_queued_seconds
    age = "" if oldest is None else f" (the oldest for {format_seconds(oldest)})"
    yield "jobs", f"{found.jobs['queued']:,} queued{age}, {found.jobs['running']:,} running"
    ended = ", ".join(
        f"{found.jobs[state]:,} {state}" for state in ("succeeded", "failed", "cancelled")
    )
    yield "last 24 h", ended
    slots = f"{found.jobs['running']:,} of {format_count(found.slots, 'slot')} busy"
    yield "workers", f"{len(found.workers):,}, {slots}" if found.workers else "none"
    yield "scheduler", found.scheduler or "none"


@service.command("pause")
@pause_options
@service_options
def pause_service(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    duration: timedelta | None,
    why: str | None,
) -> None:
    """Start no jobs of any table. Running jobs continue."""
    with open_client(config, store) as client:
        client.service.pause(duration=duration, why=why)
        found = client.service.status()
    if as_json:
        print_document(found.to_json())
        return
    running = found.jobs["running"]
    rest = f"{format_count(running, 'running job')} will end as usual; " if running else ""
    print_screen(_headline(found), Text(f"{rest}lakehand service resume ends the pause"))


@service.command("resume")
@service_options
def resume_service(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Let jobs start again."""
    with open_client(config, store) as client:
        was_paused = client.service.resume()
        found = client.service.status()
    if as_json:
        print_document(found.to_json())
    else:
        print_screen(Text("resumed" if was_paused else "the service was not paused"))


@service.command("drain")
@service_options
def drain_service(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Let all workers commit proved files, and end. The rest of their jobs is queued again.

    To keep workers that start later from taking jobs, pause the service first.
    """
    with open_client(config, store) as client:
        asked = client.service.drain()
    if as_json:
        print_document({"workers": [worker.to_json() for worker in asked]})
    elif asked:
        print_screen(Text(f"{format_count(len(asked), 'worker')} asked to drain"))
    else:
        print_screen(Text("No workers are running."))


@service.command("views")
@click.option("--grant", "grant_to", metavar="ROLE", help="Let this role read the views.")
@service_options
def create_views(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    grant_to: str | None,
) -> None:
    """Create the system tables as views of a job store on PostgreSQL.

    They are in the schema `lakehand_system`, for psql and BI tools: lakehand_system.jobs, ...
    """
    with open_client(config, store) as client:
        names = client.create_views(grant_to=grant_to)
    if as_json:
        print_document({"views": names})
    else:
        print_lines(names)


service.add_command(token)
