"""Typed events, logs and progress."""

from __future__ import annotations

from lakehand.observe.events import Event, OnProgress, Progress
from lakehand.observe.logs import configure_logging, get_logger, log_event

__all__ = ["Event", "OnProgress", "Progress", "configure_logging", "get_logger", "log_event"]
