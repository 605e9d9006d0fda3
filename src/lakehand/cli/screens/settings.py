"""Every setting, its value and where the value comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table as Grid

from lakehand.model.quantities import format_bytes, format_duration
from lakehand.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.settings import Settings


def settings_screen(settings: Settings) -> Iterable[RenderableType]:
    """Show every setting with its value and where the value comes from."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("setting", "value", "from", "what it is"):
        grid.add_column(heading, overflow="fold")
    for setting in SETTINGS:
        value = _setting_words(settings[setting.name], setting.name)
        grid.add_row(setting.name, value, settings.sources[setting.name], setting.help)
    yield grid


def _setting_words(value: object, name: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, timedelta):
        return format_duration(value)
    return format_bytes(value) if isinstance(value, int) and name.endswith("_bytes") else str(value)
