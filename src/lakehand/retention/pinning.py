"""Making a pin: it is put first and checked then, so that no vacuum slips in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from lakehand.errors import LakehandError, RefusedError, ValidationError
from lakehand.formats.optional import SupportsTags
from lakehand.model.quantities import parse_duration
from lakehand.observe.clock import Clock, SystemClock
from lakehand.retention.pins import Pin, find_pin, list_pins, mark_tagged, put_pin, unpin
from lakehand.retention.protection import hold

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot


def make_pin(
    table: FormatTable,
    name: str,
    wanted: Mapping[str, Any],
    *,
    expires: timedelta | str | None = None,
    clock: Clock | None = None,
) -> Pin:
    """Pin one of a version, a stream or a clone; the newest version if none is wanted.

    RefusedError if what is to be kept is not readable any more.
    """
    now = (clock or SystemClock()).now()
    chosen = {kind: value for kind, value in wanted.items() if value is not None}
    if len(chosen) > 1:
        raise ValidationError(f"a pin is one of {', '.join(chosen)}", field="pin", value=name)
    if not chosen:
        chosen = {"version": table.snapshot().version}
    expires_at = None if expires is None else now + _lifetime(expires)
    pin = Pin(name=name, created_at=now, expires_at=expires_at, **chosen)
    put_pin(table.store, pin)
    try:
        _check(table, pin)
        return _tag(table, pin)
    except LakehandError:
        unpin(table.store, name)
        raise


def remove_pin(table: FormatTable, name: str) -> Pin:
    """Drop a pin with the tag that was made for it; ValidationError if there is no such pin."""
    pin = find_pin(table.store, name)
    if pin.tagged and pin.version is not None and isinstance(table, SupportsTags):
        table.drop_tag(pin.name, pin.version)
    return unpin(table.store, name)


def drop_expired_tags(table: FormatTable, *, now: datetime) -> None:
    """Drop the tags of pins that have expired; the pins themselves stay on the list."""
    if not isinstance(table, SupportsTags):
        return
    for pin in list_pins(table.store):
        if pin.tagged and pin.version is not None and not pin.is_in_force(now):
            table.drop_tag(pin.name, pin.version)
            mark_tagged(table.store, pin, tagged=False)


def _tag(table: FormatTable, pin: Pin) -> Pin:
    """Tag the version in the table, unless another owner has used the name.

    The pin is stored first: a tag without a pin would never be removed.
    """
    if pin.version is None or not isinstance(table, SupportsTags):
        return pin
    if table.tagged_versions().get(pin.name) == pin.version:
        return pin
    marked = mark_tagged(table.store, pin, tagged=True)
    table.tag_version(pin.name, pin.version)
    return marked


def _lifetime(expires: timedelta | str) -> timedelta:
    try:
        return parse_duration(expires)
    except ValueError as error:
        message = f"a pin cannot expire after {expires!r}: {error}"
        raise ValidationError(message, field="expires", value=str(expires)) from error


def _check(table: FormatTable, pin: Pin) -> None:
    hold(table, [pin])
    if pin.version is None:
        return
    pinned, live = table.snapshot(version=pin.version), table.snapshot()
    missing = table.missing_files(table.data_files(pinned, _rows_in_doubt(pinned, live)))
    if missing:
        raise RefusedError(
            f"version {pin.version} of {table.store.url} cannot be read any more: {missing[0]} and"
            f" {len(missing) - 1} other files of it are gone",
            table=table.store.url,
            operation="pin",
            version=pin.version,
            hint="nothing was pinned; choose a later version",
        )


def _rows_in_doubt(pinned: Snapshot, live: Snapshot) -> list[int]:
    """Return which files of `pinned` vacuum may have taken: what the newest version has is there.

    Which rows of a file are deleted may be told elsewhere than the newest version tells it.
    """
    is_live = pc.is_in(pinned.files["path"], value_set=pc.unique(live.files["path"]))
    has_deleted_rows = pc.greater(pc.fill_null(pinned.files["deleted_rows"], 0), 0)
    in_doubt = pc.or_(pc.invert(is_live), has_deleted_rows)
    rows: list[int] = np.flatnonzero(in_doubt.to_numpy()).tolist()
    return rows if pinned.version != live.version else []
