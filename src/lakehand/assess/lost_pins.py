"""Pins on versions that are no longer there: what they were to keep cannot be kept any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError, ValidationError, VersionNotFoundError
from lakehand.model.verification import Finding
from lakehand.retention.pins import list_pins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.retention.pins import Pin

__all__ = ["HINT", "LOST_PIN", "MEANING", "find_lost_pins"]

LOST_PIN = "lost_pin"
MEANING = "a pin keeps a version that cannot be read, so vacuum refuses to work"
HINT = (
    "bring the version back from a backup; else drop the pin with `lakehand pin TABLE NAME"
    " --remove` before other commits take its number, and pin a version that is there"
)


def find_lost_pins(table: FormatTable, *, now: datetime) -> Iterator[Finding]:
    """Yield the pins in force whose versions cannot be read, and one for pins that cannot be."""
    try:
        pins = [pin for pin in list_pins(table.store) if pin.is_in_force(now)]
    except ValidationError as error:
        yield Finding(name=LOST_PIN, message=error.message, hint=error.hint or HINT)
        return
    for pin in pins:
        if pin.version is not None:
            yield from _lost(table, pin, pin.version)


def _lost(table: FormatTable, pin: Pin, version: int) -> Iterator[Finding]:
    try:
        table.snapshot(version=version)
    except (CorruptLogError, VersionNotFoundError) as error:
        message = f"pin {pin.name!r} keeps version {version}: {error.message}"
        yield Finding(name=LOST_PIN, version=version, expected=pin.name, message=message, hint=HINT)
