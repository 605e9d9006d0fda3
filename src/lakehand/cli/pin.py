"""`lakehand pin`: keep a version readable under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.shared_options import open_for_command, table_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.retention.pins import Pin


@click.command()
@table_options
@click.argument("name", required=False)
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Protect this version.")
@click.option(
    "--stream",
    metavar="URI",
    help="Protect what the stream with this checkpoint reads.",
)
@click.option("--clone", metavar="URI", help="Protect the files of this shallow clone.")
@click.option(
    "--expires",
    metavar="TIME",
    help="How long the pin is valid, for example 30d. Default: forever.",
)
@click.option("--remove", is_flag=True, help="Remove the pin.")
def pin(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    name: str | None,
    remove: bool,  # noqa: FBT001
    **wanted: Any,
) -> None:
    """Protect a version of TABLE under NAME, or what a stream or clone needs of it.

    Vacuum keeps the files of all pins. Without NAME, lists the pins.
    """
    if name is None and (remove or any(wanted.values())):
        raise click.UsageError("NAME is missing")
    opened = open_for_command(table, storage_options)
    if name is None:
        chosen = opened.pins()
    elif remove:
        chosen = [opened.unpin(name)]
    else:
        chosen = [opened.pin(name, **wanted)]
    if as_json:
        print_document({"table": opened.url, "pins": [item.to_json() for item in chosen]})
    else:
        print_screen(*pins_screen(chosen, removed=remove))


def pins_screen(pins: Sequence[Pin], *, removed: bool = False) -> Iterable[RenderableType]:
    """Show one line per pin."""
    if not pins:
        yield Text("no pins")
    for pin in pins:
        what = f"version {pin.version}" if pin.kind == "version" else f"{pin.kind} {pin.uri}"
        until = (
            "until removed" if pin.expires_at is None else f"until {pin.expires_at:%Y-%m-%d %H:%M}"
        )
        yield Text(f"{pin.name}: {what}, {'removed' if removed else until}")
