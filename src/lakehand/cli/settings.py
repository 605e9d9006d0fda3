"""`lakehand settings`: every setting, its value and where the value comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.table import Table as Grid

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.shared_options import json_option, logging_options
from lakehand.model.quantities import format_bytes, format_duration
from lakehand.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.settings import Settings


@click.command()
@json_option
@logging_options
def settings(as_json: bool) -> None:  # noqa: FBT001
    """Show every setting, its value and where the value comes from."""
    from lakehand.settings import Settings

    chosen = Settings()
    if as_json:
        values = {name: {"value": chosen[name], "source": chosen.sources[name]} for name in chosen}
        print_document({"settings": values})
    else:
        print_screen(*settings_screen(chosen))


def settings_screen(settings: Settings) -> Iterable[RenderableType]:
    """Show every setting with its value and where the value comes from."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("setting", "value", "from", "meaning"):
        grid.add_column(heading, overflow="fold")
    for setting in SETTINGS:
        value = format_value(settings[setting.name], setting.name)
        grid.add_row(setting.name, value, settings.sources[setting.name], setting.help)
    yield grid


def format_value(value: object, name: str) -> str:
    """Format the value of a setting for people."""
    if value is None:
        return "-"
    if isinstance(value, timedelta):
        return format_duration(value)
    return format_bytes(value) if isinstance(value, int) and name.endswith("_bytes") else str(value)
