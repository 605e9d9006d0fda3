"""Logs and progress."""

from __future__ import annotations

from lakehand.observe.emit import (
    OnProgress,
    Progress,
    Subscription,
    configure_logging,
    emit,
    get_logger,
    log_event,
    reported,
    subscribe,
    telling,
)

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
