"""All settings, and their values for a call."""

from __future__ import annotations

from lakehand.settings.setting import Setting
from lakehand.settings.values import (
    AREAS,
    SETTINGS,
    Settings,
    find_setting,
    parse_settings,
    split_storage_options,
)

__all__ = [
    "AREAS",
    "SETTINGS",
    "Setting",
    "Settings",
    "find_setting",
    "parse_settings",
    "split_storage_options",
]
