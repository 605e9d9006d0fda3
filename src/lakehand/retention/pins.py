"""Pins: named versions that stay readable, and who uses them.

A pin keeps one version, all that a stream has still to read, or all that a clone refers to.

_lakehand/pins/<name>.json
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectExistsError, ValidationError
from lakehand.model.documents import DocumentError, parse_object, read_value

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.storage import Store

DIRECTORY = "_lakehand/pins"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """Something that must stay readable: one of a version, a stream and a clone."""

    name: str
    created_at: datetime
    version: int | None = None
    #: Where a stream notes how far it has read.
    stream: str | None = None
    #: Root of a table that refers to files of this one.
    clone: str | None = None
    #: When the pin ends by itself; None: never.
    expires_at: datetime | None = None
    #: Whether the tag of this name in the table was made for the pin, and goes with it.
    tagged: bool = False

    @property
    def kind(self) -> str:
        if self.stream is not None:
            return "stream"
        return "version" if self.clone is None else "clone"

    @property
    def uri(self) -> str | None:
        return self.stream or self.clone

    def is_in_force(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "stream": self.stream,
            "clone": self.clone,
            "created_at": self.created_at.isoformat(),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "tagged": self.tagged,
        }


def put_pin(store: Store, pin: Pin) -> None:
    """Keep `pin`; ValidationError if its name is taken or cannot be a name.

    The caller has made sure that the version exists.
    """
    if not _NAME.fullmatch(pin.name):
        raise ValidationError(
            f"{pin.name!r} cannot be the name of a pin",
            field="name",
            value=pin.name,
            hint="use up to 100 letters, digits, dots, dashes and underscores",
        )
    try:
        store.put_if_absent(_key(pin.name), json.dumps(pin.to_json()).encode())
    except ObjectExistsError:
        raise ValidationError(
            f"{store.url} has a pin named {pin.name!r} already",
            field="name",
            value=pin.name,
            hint="unpin it first, or choose another name",
        ) from None


def mark_tagged(store: Store, pin: Pin, *, tagged: bool) -> Pin:
    """Store whether the tag of a pin's name was made for it."""
    marked = replace(pin, tagged=tagged)
    store.put(_key(pin.name), json.dumps(marked.to_json()).encode())
    return marked


def unpin(store: Store, name: str) -> Pin:
    """Drop a pin and return it; ValidationError if there is none of that name."""
    pin = find_pin(store, name)
    store.delete([_key(name)])
    return pin


def find_pin(store: Store, name: str) -> Pin:
    """Return a pin; ValidationError if there is none of that name, or it cannot be read."""
    keys = [info.key for info in store.list(DIRECTORY)]
    if _key(name) not in keys:
        known = ", ".join(key.removeprefix(f"{DIRECTORY}/").removesuffix(".json") for key in keys)
        raise ValidationError(
            f"{store.url} has no pin named {name!r}",
            field="name",
            value=name,
            hint=f"there are: {known}" if known else "the table has no pins",
        )
    return _read(store, _key(name))


def list_pins(store: Store) -> list[Pin]:
    """Return all pins by name, expired ones included; ValidationError if one cannot be read."""
    return [_read(store, info.key) for info in store.list(DIRECTORY)]


def pinned_versions(store: Store, *, now: datetime) -> tuple[int, ...]:
    """Return the versions that pins in force keep readable by their number."""
    pins = (pin for pin in list_pins(store) if pin.is_in_force(now))
    return tuple({pin.version for pin in pins if pin.version is not None})


def _read(store: Store, key: str) -> Pin:
    try:
        pin = read_value(Pin, parse_object(store.get(key)), required=("version", "expires_at"))
        _require_one(pin)
        _require_name(pin, key)
    except DocumentError as error:
        raise ValidationError(
            f"the pin {key} of {store.url} cannot be read: {error}",
            field="pins",
            hint="nothing was deleted; delete the object if the pin is not needed any more",
        ) from error
    return pin


def _require_one(pin: Pin) -> None:
    if (pin.version, pin.stream, pin.clone).count(None) != 2:  # noqa: PLR2004  one of the three is there
        raise DocumentError("it names not one of version, stream and clone")


def _require_name(pin: Pin, key: str) -> None:
    """Raise unless a pin has the name that its object has: what is done to one is done to both."""
    if _key(pin.name) != key:
        raise DocumentError(f"it says that its name is {pin.name!r}")


def _key(name: str) -> str:
    return f"{DIRECTORY}/{name}.json"
