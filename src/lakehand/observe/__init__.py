"""Logs and progress."""

from __future__ import annotations

from lakehand.observe.logs import configure_logging, get_logger, log_event
from lakehand.observe.progress import OnProgress, Progress

__all__ = ["OnProgress", "Progress", "configure_logging", "get_logger", "log_event"]
