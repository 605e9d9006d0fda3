"""The table of settings, by area. A new setting goes into the module of its area."""

from __future__ import annotations

from lakehand.settings_table.compaction import COMPACTION
from lakehand.settings_table.health import HEALTH
from lakehand.settings_table.hot import HOT
from lakehand.settings_table.retention import RETENTION
from lakehand.settings_table.running import RUNNING
from lakehand.settings_table.setting import Setting
from lakehand.settings_table.sink import SINK

__all__ = ["SETTINGS", "Setting"]

SETTINGS: tuple[Setting, ...] = (*COMPACTION, *RUNNING, *RETENTION, *HEALTH, *SINK, *HOT)
