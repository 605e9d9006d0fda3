"""Which files of a log may go: a pure choice over what a listing showed.

A version is readable if a checkpoint or version 0 lies at or below it and every commit in between
is there. So what goes is always all below one checkpoint, the boundary, and never the boundary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    CheckpointName,
    CompactionName,
    parse_log_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.model.upkeep import KeepWishes
    from lakehand.storage import ObjectInfo

__all__ = ["Stretch", "cutoff_at", "held_back", "leftovers", "stretches"]

#: Younger files may belong to somebody who is writing them right now.
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

    Whole days, so that cleanups of one day agree, whoever runs them.
    """
    return datetime.combine((now - retention).astimezone(UTC).date(), time(), UTC)


def held_back(listing: LogListing, horizon: int, wishes: KeepWishes) -> tuple[int, str | None]:
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
    """Say whether a file is of no use once reading starts at `boundary`, whose commit stays."""
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
