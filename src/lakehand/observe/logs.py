"""Log records: a sentence for people, a stable event name for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

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


def configure_logging(*, level: str, form: str, with_time: bool = False) -> None:
    """Write lakehand's log records to stderr, as the command does."""
    handler = logging.StreamHandler(sys.stderr)
    line = "%(asctime)s %(message)s" if with_time else "%(levelname)s %(name)s: %(message)s"
    text = logging.Formatter(line, datefmt="%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logger = logging.getLogger(_ROOT)
    logger.handlers = [handler]
    logger.setLevel(level.upper())
