"""Files in a table's root that no version within the retention needs, whatever their age."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.observe.clock import SystemClock
from lakehand.retention.garbage import GARBAGE_SCHEMA, open_garbage
from lakehand.retention.promise import read_promise

if TYPE_CHECKING:
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["list_orphans"]

#: Clocks of stores and of this machine differ; nothing is hidden for being from the future.
_FAR = timedelta(days=36_500)


def list_orphans(table: FormatTable, *, settings: Settings, clock: Clock | None = None) -> pa.Table:
    """Return `path`, `bytes`, `modified_at`, `age_seconds` and `is_due` of every orphan, by path.

    Young ones may be on their way into the table; `is_due` says of which vacuum would take care.
    RefusedError if it is not known which files versions need.
    """
    clock = clock or SystemClock()
    promise = read_promise(table, settings, clock)
    with open_garbage() as garbage:
        batches = table.store.scan(enter=promise.names.may_hold_data)
        for _ in garbage.scan(batches, names=promise.names, young_since=clock.now() + _FAR):
            pass
        garbage.keep_protected(promise.protection)
        garbage.keep_for_clones(promise.held.names)
        newest, ignored = promise.protection.newest_version, promise.held.expired_tags
        garbage.keep_protected(table.protected_since(version=newest, ignored_tags=ignored))
        found = pa.Table.from_batches(garbage.batches("listed"), GARBAGE_SCHEMA)
    return _described(found, now=clock.now(), due_before=promise.since)


def _described(found: pa.Table, *, now: datetime, due_before: datetime) -> pa.Table:
    type_ = GARBAGE_SCHEMA.field("modified_at").type
    age = pc.subtract(pa.scalar(now, type_), found["modified_at"])
    seconds = pc.divide(age.cast(pa.int64()), 1_000_000)
    is_due = pc.less(found["modified_at"], pa.scalar(due_before, type_))
    columns = {"path": found["key"], "bytes": found["bytes"], "modified_at": found["modified_at"]}
    return pa.table({**columns, "age_seconds": seconds, "is_due": is_due})
