"""The hot tier: changes in memory and in a write-ahead log, merged into a table later."""

from __future__ import annotations

from lakehand.hot.hot_reports import FlushReport, StorageStats
from lakehand.hot.hot_snapshot import HotSnapshot
from lakehand.hot.hot_table import HotTable
from lakehand.hot.tier import HotTier

__all__ = ["FlushReport", "HotSnapshot", "HotTable", "HotTier", "StorageStats"]
