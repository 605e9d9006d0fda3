"""What operations tell: log records, progress and reports.

Every report and every progress value passes `emit`. Metrics, logs and services subscribe there,
and need not know the verbs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, Self, TypeVar

_ROOT = "lakehand"
# A library logs nothing until its user configures logging.
logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def get_logger(module: str) -> logging.Logger:
    """Return the logger of a lakehand module."""
    return logging.getLogger(module if module.startswith(_ROOT) else f"{_ROOT}.{module}")


def log_event(
    logger: logging.Logger, level: int, event: str, message: str, *args: Any, **fields: Any
) -> None:
    """Log `message % args` with the stable event name `event` and additional fields."""
    logger.log(level, message, *args, extra={"event": event, "fields": fields})


def is_logging_configured(logger: logging.Logger) -> bool:
    """Return whether logging is configured, so that records of `logger` are shown."""
    found: logging.Logger | None = logger
    while found is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in found.handlers):
            return True
        found = found.parent if found.propagate else None
    return False


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def configure_logging(*, level: str, form: str, is_service: bool = False) -> None:
    """Write lakehand's log records to stderr, as the command does."""
    handler = logging.StreamHandler(sys.stderr)
    told = "%(message)s" if is_service else "%(levelname)s %(name)s: %(message)s"
    text = logging.Formatter(f"%(asctime)s {told}", datefmt="%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logger = logging.getLogger(_ROOT)
    logger.handlers = [handler]
    logger.setLevel(level.upper())


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of an operation. An exception from the callback cancels the operation safely."""

    #: Phase of the operation: survey, read, write, prove, commit, ...
    phase: str
    done: int
    #: None if not known yet.
    total: int | None = None
    #: What is counted: groups, files, bytes.
    unit: str = ""
    #: The same in bytes read, for units that differ in size.
    done_bytes: int | None = None
    total_bytes: int | None = None
    #: The verb, and the URL of the table that it works on.
    operation: str = ""
    table: str = ""


OnProgress = Callable[[Progress], None]


P = ParamSpec("P")
R = TypeVar("R")

#: Gets a report, as a verb returns it, or a `Progress`.
Subscriber = Callable[[Any], object]

_logger = get_logger(__name__)
_lock = Lock()
#: Replaced as a whole, so that `emit` needs no lock.
_subscriptions: tuple[Subscription, ...] = ()


class Subscription:
    """Calls a subscriber until it is closed, at the end of a `with` block or by `close`."""

    def __init__(self, callback: Subscriber) -> None:
        self._callback = callback

    def deliver(self, event: object) -> None:
        """Call the subscriber; what it raises is logged, and does not reach the operation."""
        try:
            self._callback(event)
        except Exception as error:  # noqa: BLE001  an observer must not break an operation
            message, name = "A subscriber failed on %s: %r", type(event).__name__
            log_event(_logger, logging.ERROR, "subscriber_failed", message, name, error)

    def close(self) -> None:
        """Stop calling the subscriber."""
        global _subscriptions  # noqa: PLW0603  the subscribers of this process
        with _lock:
            _subscriptions = tuple(one for one in _subscriptions if one is not self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def subscribe(callback: Subscriber) -> Subscription:
    """Call `callback` with every report and every progress value of this process from now on.

    It is called in the thread of the operation, which waits for it.
    """
    global _subscriptions  # noqa: PLW0603  the subscribers of this process
    subscription = Subscription(callback)
    with _lock:
        _subscriptions = (*_subscriptions, subscription)
    return subscription


def emit(event: object) -> None:
    """Hand a report or a progress value to all subscribers."""
    for subscription in _subscriptions:
        subscription.deliver(event)


def reported(operation: Callable[P, R]) -> Callable[P, R]:
    """Emit what `operation` returns, which is its report."""

    @wraps(operation)
    def run(*args: P.args, **options: P.kwargs) -> R:
        report = operation(*args, **options)
        emit(report)
        return report

    return run


def telling(on_progress: OnProgress | None, *, operation: str, table: str) -> OnProgress:
    """Return a function that emits progress of an operation, then hands it to `on_progress`.

    What `on_progress` raises stops the operation.
    """

    def tell(progress: Progress) -> None:
        if on_progress is None and not _subscriptions:
            return
        named = replace(progress, operation=operation, table=table)
        emit(named)
        if on_progress is not None:
            on_progress(named)

    return tell
