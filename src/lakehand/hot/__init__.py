"""The hot tier: rows in memory and in a log on disk, read beside the table that they end up in."""

from __future__ import annotations

from lakehand.hot.reports import FlushReport, StorageStats
from lakehand.hot.snapshot import HotSnapshot
from lakehand.hot.table import HotTable
from lakehand.hot.tier import HotTier

__all__ = ["FlushReport", "HotSnapshot", "HotTable", "HotTier", "StorageStats"]
