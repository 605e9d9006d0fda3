"""`lakehand settings`: every setting, its value and where the value comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.shared_options import (
    complete_table,
    json_option,
    logging_options,
    open_for_command,
    storage_option,
)
from lakehand.model.quantities import format_bytes, format_duration
from lakehand.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from lakehand.settings import Settings


@click.command()
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=complete_table)
@click.option("--changed", is_flag=True, help="Only settings that do not have their default.")
@storage_option
@json_option
@logging_options
def settings(
    table: str | None,
    changed: bool,  # noqa: FBT001
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
) -> None:
    """Show every setting, its value and where the value comes from.

    With TABLE, the properties of that table count, and the defaults of its format.
    """
    from lakehand.settings import Settings

    chosen = Settings() if table is None else open_for_command(table, storage_options).settings()
    names = [name for name in chosen if not changed or chosen.sources[name] != "default"]
    if as_json:
        values = {name: {"value": chosen[name], "source": chosen.sources[name]} for name in names}
        print_document({"settings": values})
    elif names:
        print_screen(*settings_screen(chosen, names))
    else:
        print_screen(Text("every setting has its default"))


def settings_screen(settings: Settings, names: Sequence[str]) -> Iterable[RenderableType]:
    """Show settings with their values and where the values come from."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("setting", "value", "from", "meaning"):
        grid.add_column(heading, overflow="fold")
    for setting in map(find_setting, names):
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
