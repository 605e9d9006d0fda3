"""Logs and progress."""

from __future__ import annotations

from lakehand.observe.emit import Subscription, emit, reported, subscribe, telling
from lakehand.observe.logs import configure_logging, get_logger, log_event
from lakehand.observe.progress import OnProgress, Progress

__all__ = [
    "OnProgress",
    "Progress",
    "Subscription",
    "configure_logging",
    "emit",
    "get_logger",
    "log_event",
    "reported",
    "subscribe",
    "telling",
]
