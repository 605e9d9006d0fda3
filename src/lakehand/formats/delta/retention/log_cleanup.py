"""Deleting expired log entries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakehand.errors import VersionNotFoundError
from lakehand.formats.delta.checkpoints.comparison import checkpoint_difference
from lakehand.formats.delta.checkpoints.files import delete_hadoop_sum, write_classic_copy
from lakehand.formats.delta.checkpoints.last_checkpoint import (
    check_checkpoint,
    write_last_checkpoint,
)
from lakehand.formats.delta.log.commit_times import version_at
from lakehand.formats.delta.log.listing import LogListing, list_log
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.actions import interval_property
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    SIDECAR_DIRECTORY,
    CheckpointName,
    CompactionName,
    parse_log_name,
)
from lakehand.model.maintenance import ExtraRetention, LogCleanup
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.delta.checkpoints.last_checkpoint import CheckpointCheck
    from lakehand.storage import ObjectInfo, Store

#: Younger files may be in the process of being written.
IN_PROGRESS = timedelta(days=1)
_TEMPORARY = re.compile(r"(\.[0-9]{20}\..*|_commit_[0-9a-fA-F-]+\.json)\.tmp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Versions that all build on one checkpoint, or on version 0."""

    #: Without these no version of the stretch can be read; so they go first, and once they are
    #: gone the others may go in any order.
    anchors: tuple[ObjectInfo, ...]
    others: tuple[ObjectInfo, ...]


def cutoff_at(now: datetime, retention: timedelta) -> datetime:
    """Return the UTC midnight at or before `now - retention`.

    Whole days, so that all cleanups of one day agree.
    """
    return datetime.combine((now - retention).astimezone(UTC).date(), time(), UTC)


def held_back(listing: LogListing, horizon: int, wishes: ExtraRetention) -> tuple[int, str | None]:
    """Return the version from which on all must stay readable, and who moved it below `horizon`."""
    newest, earliest = listing.last_version or 0, listing.earliest_version or 0
    folded = sorted({checkpoint.version for checkpoint in listing.checkpoints})[::-1]
    limits: list[tuple[int, str | None]] = [(horizon, None)]
    if wishes.versions:
        limits.append((newest - wishes.versions + 1, f"the newest {wishes.versions} versions stay"))
    if wishes.checkpoints:
        kept = folded[: wishes.checkpoints]
        last = kept[-1] if len(kept) == wishes.checkpoints else 0
        limits.append((last, f"the newest {wishes.checkpoints} checkpoints stay"))
    # A pin of a version that is gone already keeps nothing.
    pins = [version for version in wishes.pinned_versions if version >= earliest]
    limits += [(version, f"version {version} is pinned") for version in pins]
    return min(limits, key=lambda limit: limit[0])


def stretches(objects: Iterable[ObjectInfo], boundary: int) -> list[Stretch]:
    """Return all that may go below the checkpoint at `boundary`, oldest first."""
    below = [info for info in objects if _ends_below(info, boundary)]
    starts = sorted({version for info in below if (version := _anchored(info)) is not None})
    # What lies below the first anchor cannot be read now, and hangs on nothing.
    return [_stretch(below, first, last) for first, last in pairwise([-1, *starts, boundary + 1])]


def _stretch(objects: list[ObjectInfo], first: int, last: int) -> Stretch:
    chosen = [info for info in objects if first <= _first_version(info) < last]
    anchors = tuple(info for info in chosen if _anchored(info) is not None)
    return Stretch(anchors=anchors, others=tuple(i for i in chosen if i not in anchors))


def leftovers(objects: Iterable[ObjectInfo], *, now: datetime) -> Iterator[ObjectInfo]:
    """Yield temporary files in the log that writers have left behind."""
    for info in objects:
        name = info.key.removeprefix(f"{LOG_DIRECTORY}/")
        if _TEMPORARY.fullmatch(name) and info.modified_at < now - IN_PROGRESS:
            yield info


def _ends_below(info: ObjectInfo, boundary: int) -> bool:
    """Return whether a file is not needed if reading starts at `boundary`, whose commit stays."""
    name = parse_log_name(info.key)
    if name is None:
        return False
    if isinstance(name, CompactionName):
        return name.first <= boundary
    return name.version < boundary


def _first_version(info: ObjectInfo) -> int:
    name = parse_log_name(info.key)
    if name is None:
        raise ValueError(f"{info.key} is of no version")
    return name.first if isinstance(name, CompactionName) else name.version


def _anchored(info: ObjectInfo) -> int | None:
    """Return the version that a file makes readable without any older file."""
    name = parse_log_name(info.key)
    if isinstance(name, CheckpointName):
        return name.version
    is_first = info.key.endswith("/" + "0" * 20 + ".json")
    return 0 if is_first else None


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
    wishes: ExtraRetention,
    even_if_disabled: bool = False,
    dry_run: bool = False,
) -> LogCleanup:
    """Delete what no version from the oldest promised one on needs; `dry_run` only names it."""
    state = load_state_at(store)
    # Metadata of other formats is made from the log, and may not be up to date.
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

    def run(self, wishes: ExtraRetention) -> LogCleanup:
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
            # The newest version must load from the remaining files; else the error is raised now.
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
        self, listing: LogListing, wishes: ExtraRetention
    ) -> tuple[CheckpointCheck | None, str | None]:
        """Return the newest sound checkpoint that leaves all promised versions readable.

        It exists already, which is also all that checkpoint protection asks of a boundary.
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
                self._store, checkpoint, now=self._now, listing=listing
            ):
                return check, reason
            reason = f"the checkpoint of version {checkpoint.version} is damaged"
        return None, reason or f"version {horizon} has no checkpoint at or below it"

    def _prepare(self, boundary: CheckpointCheck, expired: Sequence[Stretch]) -> None:
        """Point readers past the deleted files; a pointer to a newer checkpoint is kept."""
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

        None if a checkpoint cannot be read: what it references is unknown then.
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
