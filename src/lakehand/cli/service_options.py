"""What the commands of the service share: options, the client, and parts of screens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid

from lakehand.cli.shared_options import json_option, logging_options
from lakehand.model.quantities import format_duration, parse_duration
from lakehand.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC

    from lakehand.service.client import ServiceClient

#: A pause up to this many seconds since 1970 has an end.
HAS_END = 9_000_000_000.0


class CommandGroup(click.Group):
    """Lists its commands in the order in which they are declared, with whole sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, _sentence(one)) for name, one in self.commands.items()])


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Configuration file. Default: $LAKEHAND_CONFIG, else lakehand.toml in this directory.",
)
store_option = click.option(
    "--store", metavar="URL", help="Job store to use instead of the one in the file."
)


def service_options(command: FC) -> FC:
    """Add the options of every command of the service."""
    return config_option(store_option(json_option(logging_options(command))))


def open_client(config: Path | None, store: str | None, *, create: bool = False) -> ServiceClient:
    """Open the service of the command line."""
    from lakehand.service.client import ServiceClient

    return ServiceClient(config, store=store, create=create)


class _Duration(click.ParamType[timedelta]):
    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def duration_option(sentence: str) -> Callable[[FC], FC]:
    """Return the option `--for`."""
    return click.option("--for", "duration", type=_Duration(), metavar="TIME", help=sentence)


def pause_options(command: FC) -> FC:
    """Add how long a pause holds, and why."""
    duration = duration_option("How long, such as 2h. Default: until it is resumed.")
    why = click.option("--why", metavar="TEXT", help="Reason, shown to other users.")
    return duration(why(command))


def listing(*headings: str, right: tuple[str, ...] = (), fold: tuple[str, ...] = ()) -> Grid:
    """Return an empty table without lines; columns not in `fold` are never broken."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify = "right" if heading in right else "left"
        is_folded = heading in fold
        overflow = "fold" if is_folded else "ellipsis"
        grid.add_column(
            heading,
            justify=justify,  # type: ignore[arg-type]
            overflow=overflow,  # type: ignore[arg-type]
            no_wrap=not is_folded,
        )
    return grid


def format_seconds(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def format_moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_pause(until: float, by: str | None, why: str | None) -> str:
    """Describe a pause: by whom, until when and why."""
    end = f"until {format_moment(until)}" if until < HAS_END else "until it is resumed"
    reason = f": {why}" if why else ""
    return f"paused by {by}, {end}{reason}"


def shown_location(url: str) -> str:
    """Return a URL as people write it: tables on this machine by their path."""
    return parse_location(url).path if url.startswith("file:") else url
