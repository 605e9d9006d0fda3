"""Deleting what a log no longer needs.

Nothing goes before the checkpoint that reading starts from afterwards was read and compared with
the commits. What goes, goes from the oldest version on: wherever it stops, the versions that are
left can be read, and the next cleanup carries on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import VersionNotFoundError
from lakehand.formats.delta.checkpoints.check import check_checkpoint
from lakehand.formats.delta.checkpoints.classic_copy import write_classic_copy
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum
from lakehand.formats.delta.checkpoints.last_checkpoint import write_last_checkpoint
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.intervals import interval_property
from lakehand.formats.delta.protocol.names import LOG_DIRECTORY, SIDECAR_DIRECTORY
from lakehand.formats.delta.upkeep.comparison import checkpoint_difference
from lakehand.formats.delta.upkeep.expired import (
    IN_PROGRESS,
    cutoff_at,
    held_back,
    leftovers,
    stretches,
)
from lakehand.model.upkeep import LogCleanup
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from lakehand.formats.delta.checkpoints.check import CheckpointCheck
    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.formats.delta.upkeep.expired import Stretch
    from lakehand.model.upkeep import KeepWishes
    from lakehand.storage import ObjectInfo, Store

__all__ = ["clean_logs", "cleanup_refusal", "log_retention"]

_RETENTION_PROPERTY = "delta.logRetentionDuration"
_DEFAULT_RETENTION = "interval 30 days"
_ENABLED_PROPERTY = "delta.enableExpiredLogCleanup"


def log_retention(properties: Mapping[str, str]) -> timedelta:
    """Return how long a table asks to keep its history."""
    return interval_property(properties, _RETENTION_PROPERTY, _DEFAULT_RETENTION)


def cleanup_refusal(properties: Mapping[str, str]) -> str | None:
    """Return why a table does not want its log to be cleaned; None if it does."""
    is_disabled = properties.get(_ENABLED_PROPERTY, "true").lower() == "false"
    return f"the table forbids it ({_ENABLED_PROPERTY})" if is_disabled else None


def clean_logs(
    store: Store,
    *,
    now: datetime,
    wishes: KeepWishes,
    even_if_disabled: bool = False,
    dry_run: bool = False,
) -> LogCleanup:
    """Delete what no version from the oldest promised one on needs; `dry_run` only names it."""
    state = load_state_at(store)
    # Metadata of other formats beside the table is made from the log, and may not have seen all.
    require_write("vacuum", state.protocol, state.metadata, table=store.url, force=even_if_disabled)
    properties = state.metadata.configuration
    cutoff = cutoff_at(now, log_retention(properties))
    refusal = cleanup_refusal(properties)
    if refusal is not None and not even_if_disabled:
        return _nothing(list_log(store), cutoff, refusal)
    return _Cleanup(store, now=now, cutoff=cutoff, dry_run=dry_run).run(wishes)


def _nothing(listing: LogListing, cutoff: datetime, reason: str) -> LogCleanup:
    return LogCleanup(
        version=listing.last_version or 0,
        oldest_version=listing.earliest_version or 0,
        cutoff=cutoff,
        reason=reason,
    )


class _Cleanup:
    """One cleanup, and what it has deleted so far."""

    def __init__(self, store: Store, *, now: datetime, cutoff: datetime, dry_run: bool) -> None:
        self._store = store
        self._now = now
        self._cutoff = cutoff
        self._dry_run = dry_run
        self._gone: list[ObjectInfo] = []
        self._errors: list[Mapping[str, Any]] = []

    def run(self, wishes: KeepWishes) -> LogCleanup:
        objects = [info for info in self._store.list(f"{LOG_DIRECTORY}/") if _is_top(info)]
        listing = list_log(self._store)
        boundary, reason = self._boundary(listing, wishes)
        if boundary is not None:
            expired = stretches(objects, boundary.version)
            self._prepare(boundary, expired)
            self._delete_stretches(expired)
        self._delete(list(leftovers(objects, now=self._now)))
        self._delete(self._orphaned_sidecars())
        oldest = listing.earliest_version or 0
        if not self._dry_run:
            # The newest version must load from what is left, or somebody has to know at once.
            load_state_at(self._store)
        return LogCleanup(
            version=listing.last_version or 0,
            oldest_version=oldest if boundary is None else boundary.version,
            cutoff=self._cutoff,
            reason=reason,
            files=tuple(info.key for info in self._gone),
            bytes=sum(info.bytes for info in self._gone),
            errors=tuple(self._errors),
        )

    def _boundary(
        self, listing: LogListing, wishes: KeepWishes
    ) -> tuple[CheckpointCheck | None, str | None]:
        """Return the newest sound checkpoint that leaves all promised versions readable.

        It is there already, which is also all that checkpoint protection asks of a boundary.
        """
        try:
            horizon = version_at(self._store, self._cutoff)
        except VersionNotFoundError:
            return None, "no version is old enough"
        horizon, reason = held_back(listing, horizon, wishes)
        candidates = [c for c in listing.checkpoints if c.version <= horizon]
        for checkpoint in sorted(candidates, key=lambda c: c.rank, reverse=True):
            check = check_checkpoint(self._store, checkpoint)
            if check.problem is None and not checkpoint_difference(
                self._store, checkpoint, now=self._now
            ):
                return check, reason
            reason = f"the checkpoint of version {checkpoint.version} is damaged"
        return None, reason or f"version {horizon} has no checkpoint at or below it"

    def _prepare(self, boundary: CheckpointCheck, expired: Sequence[Stretch]) -> None:
        """Lead readers past what goes; a pointer to a newer checkpoint stays as it is."""
        if self._dry_run:
            return
        if any(stretch.anchors or stretch.others for stretch in expired):
            write_classic_copy(self._store, boundary)
        write_last_checkpoint(self._store, boundary.pointer)

    def _delete_stretches(self, chosen: Sequence[Stretch]) -> None:
        for stretch in chosen:
            # Versions whose anchor would not go can still be read, and so must stay whole.
            if not self._delete(stretch.anchors):
                return
            self._delete(stretch.others)

    def _delete(self, objects: Sequence[ObjectInfo]) -> bool:
        """Delete objects; say whether all of them are gone."""
        if self._dry_run or not objects:
            self._gone += objects
            return True
        failures = {f.key: f.error for f in self._store.delete([info.key for info in objects])}
        for info in objects:
            if info.key not in failures:
                delete_hadoop_sum(self._store, info.key)
        self._gone += [info for info in objects if info.key not in failures]
        self._errors += [error.to_json() | {"path": key} for key, error in failures.items()]
        reached(Step.LOG_STRETCH_DELETED)
        return not failures

    def _orphaned_sidecars(self) -> list[ObjectInfo]:
        """Return old sidecars that no checkpoint names which is still there.

        None if a checkpoint cannot be read: nobody knows then what it names.
        """
        found = list(self._store.list(f"{SIDECAR_DIRECTORY}/"))
        old = [info for info in found if info.modified_at < self._now - IN_PROGRESS]
        if not old:
            return []
        gone = {info.key for info in self._gone}
        left = [c for c in list_log(self._store).checkpoints if not gone.intersection(c.keys)]
        checks = [check_checkpoint(self._store, checkpoint) for checkpoint in left]
        if any(check.problem for check in checks):
            return []
        named = {key for check in checks for key in check.keys}
        return [info for info in old if info.key not in named]


def _is_top(info: ObjectInfo) -> bool:
    return "/" not in info.key.removeprefix(f"{LOG_DIRECTORY}/")
