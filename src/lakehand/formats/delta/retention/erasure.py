"""Getting values that were deleted out of the log, and saying when they will be.

A log is cleaned up to a checkpoint, whose own commit stays. So values leave it once there is a
checkpoint without them, of a version whose commit does not hold them either, and once that version
is older than the log retention.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from lakehand.formats.delta.checkpoints.content import tombstone_retention
from lakehand.formats.delta.log.commit_times import committed_at, from_milliseconds
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.retention.old_values import (
    find_old_values,
    last_tombstone_ms,
    live_partition_values,
)
from lakehand.formats.delta.upkeep.cleanup import cleanup_refusal, log_retention
from lakehand.formats.delta.upkeep.expired import held_back
from lakehand.model.purging import OldValues
from lakehand.model.work import Change

if TYPE_CHECKING:
    from lakehand.model.upkeep import KeepWishes
    from lakehand.storage import Store

__all__ = ["LogErasure", "boundary_change"]

_DAY = timedelta(days=1)


def boundary_change(version: int) -> Change:
    """Return a commit without files, so that the one before it can be cleaned away in time."""
    return Change(kind="metadata", base_version=version, operation="PURGE")


class LogErasure:
    """The log of a table as it is now, and what takes old values out of it."""

    def __init__(self, store: Store, *, now: datetime) -> None:
        self._store = store
        self._now = now
        state = load_state_at(store)
        self._metadata = state.metadata
        self._listing = list_log(store)
        self.newest = state.segment.version
        self._live = live_partition_values(store, state.metadata)
        self._values = find_old_values(store, self._listing, state.metadata, self._live)

    @property
    def is_in_log(self) -> bool:
        """Whether anything in the log holds values that are gone."""
        first = self._values.clean_from
        versions = (*self._listing.commits, *(c.version for c in self._listing.checkpoints))
        return any(version < first for version in versions)

    @property
    def needs_commit(self) -> bool:
        """Whether the newest commit itself, or its checkpoint, holds values that are gone."""
        return self.is_in_log and self.newest < self._values.clean_from

    @property
    def checkpoint_to_write(self) -> int | None:
        """The version that wants a checkpoint now; None: none, or not before tombstones expire."""
        is_waiting = self.is_in_log and not self.needs_commit and self._checkpointed() is None
        expiry = self._tombstones_expire_at if is_waiting else None
        is_due = is_waiting and (expiry is None or expiry <= self._now)
        return self._values.clean_from if is_due else None

    def report(self, wishes: KeepWishes) -> OldValues:
        """Say what of the log, and of older versions, holds values that are gone."""
        removal = self._values.last_removal
        at = self._forgotten_at() if removal is None else self._committed_at(removal)
        if not self.is_in_log:
            return OldValues(version=removal, at=at, in_history=False)
        boundary = self._checkpointed() or self._values.clean_from
        reason = cleanup_refusal(self._metadata.configuration)
        _, held_by = held_back(self._listing, boundary, wishes)
        reason = reason or held_by
        gone_at = None if reason else self._gone_at(boundary)
        return OldValues(
            version=removal, at=at, in_history=True, history_gone_at=gone_at, reason=reason
        )

    def _forgotten_at(self) -> datetime | None:
        """Return when files were removed last by commits that are cleaned away already.

        Whether rows were deleted with them is not known any more.
        """
        earliest = self._listing.earliest_version
        newest_ms = last_tombstone_ms(self._store, earliest) if earliest else None
        return None if newest_ms is None else from_milliseconds(newest_ms)

    def _gone_at(self, boundary: int) -> datetime:
        """Return from when on a cleanup deletes all below `boundary`: it goes by whole days."""
        at = self._now if boundary > self.newest else self._committed_at(boundary)
        midnight = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
        first = midnight if midnight == at else midnight + _DAY
        gone_at = first + log_retention(self._metadata.configuration)
        expiry = None if self._checkpointed() is not None else self._tombstones_expire_at
        return gone_at if expiry is None else max(gone_at, expiry)

    def _checkpointed(self) -> int | None:
        """Return the first version without old values that has a checkpoint."""
        versions = (c.version for c in self._listing.checkpoints)
        return min((v for v in versions if v >= self._values.clean_from), default=None)

    @cached_property
    def _tombstones_expire_at(self) -> datetime | None:
        """Return until when a checkpoint would have to hold partition values that are gone."""
        version = min(self._values.clean_from, self.newest)
        newest_ms = last_tombstone_ms(self._store, version, self._live)
        if newest_ms is None:
            return None
        expiry = from_milliseconds(newest_ms)
        return expiry + tombstone_retention(self._metadata.configuration)

    def _committed_at(self, version: int) -> datetime:
        return committed_at(self._store, self._listing, version)
