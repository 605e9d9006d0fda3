"""The names in the log, sorted into commits, checkpoints and compactions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    CheckpointName,
    CommitName,
    CompactionName,
    commit_key,
    parse_log_name,
    version_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from lakehand.formats.delta.protocol.names import CheckpointKind
    from lakehand.storage import ObjectInfo, Store

__all__ = ["CheckpointFiles", "CompactionFile", "LogListing", "list_log"]

# At one version the later kind wins, because fewer engines could have written it by mistake.
_RANK: dict[CheckpointKind, int] = {"classic": 0, "multipart": 1, "v2": 2}
#: How often a log is listed in which a commit seems to be missing and is not.
_LISTINGS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint: one file, or all its parts in order."""

    version: int
    kind: CheckpointKind
    keys: tuple[str, ...]
    bytes: int
    modified_at: datetime

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """Order in which checkpoints are preferred; the greatest is taken."""
        return (self.version, _RANK[self.kind], len(self.keys), self.keys[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionFile:
    first: int
    last: int
    key: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LogListing:
    """What a listing of the log showed, from some version on."""

    #: When storage took each commit.
    commits: dict[int, datetime] = field(default_factory=dict)
    commit_bytes: dict[int, int] = field(default_factory=dict)
    #: Complete checkpoints only.
    checkpoints: tuple[CheckpointFiles, ...] = ()
    compactions: tuple[CompactionFile, ...] = ()

    @property
    def last_version(self) -> int | None:
        versions = [*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)]
        return max(versions, default=None)

    @property
    def earliest_version(self) -> int | None:
        """The first version that can be put together from what was listed."""
        starts = [checkpoint.version for checkpoint in self.checkpoints]
        if 0 in self.commits:
            starts.append(0)
        return min(starts, default=None)

    def newest_checkpoint(self, version: int | None) -> CheckpointFiles | None:
        """Return the best checkpoint at or below `version`."""
        candidates = [c for c in self.checkpoints if version is None or c.version <= version]
        return max(candidates, key=lambda checkpoint: checkpoint.rank, default=None)


def list_log(store: Store, *, start: int = 0, distrusted: Collection[str] = ()) -> LogListing:
    """List the log from version `start` on; checkpoints with a file in `distrusted` do not count.

    A directory on disk that is written to while it is listed may show a commit and not the one
    before it. Then it is listed again: a gap is a gap only if the missing commit is not there.
    """
    for _ in range(_LISTINGS):
        listing = _list_once(store, start, distrusted)
        gap = _first_gap(listing.commits)
        if gap is None or not store.exists(commit_key(gap)):
            break
    return listing


def _first_gap(versions: Collection[int]) -> int | None:
    """Return the first version that is missing between others."""
    if not versions or len(versions) == max(versions) - min(versions) + 1:
        return None
    return next(version for version in count(min(versions)) if version not in versions)


def _list_once(store: Store, start: int, distrusted: Collection[str]) -> LogListing:
    """List the log as storage shows it.

    Names that mean nothing are passed over, and so are empty checkpoint files, which failed writers
    leave behind.
    """
    commits: dict[int, datetime] = {}
    sizes: dict[int, int] = {}
    parts: dict[CheckpointName, dict[int, ObjectInfo]] = {}
    compactions: list[CompactionFile] = []
    for info in _versioned(store, start):
        match parse_log_name(info.key):
            case CommitName(version=version):
                commits[version], sizes[version] = info.modified_at, info.bytes
            case CompactionName(first=first, last=last):
                compactions.append(
                    CompactionFile(first=first, last=last, key=info.key, bytes=info.bytes)
                )
            case CheckpointName() as name if info.bytes > 0:
                parts.setdefault(replace(name, part=1), {})[name.part] = info
            case _:
                pass
    checkpoints = (_complete(name, found) for name, found in parts.items())
    return LogListing(
        commits=commits,
        commit_bytes=sizes,
        checkpoints=tuple(c for c in checkpoints if c and not set(c.keys) & set(distrusted)),
        compactions=tuple(compactions),
    )


def _versioned(store: Store, start: int) -> Iterator[ObjectInfo]:
    """Yield objects whose names start with a version; they sort before all other names."""
    first = f"{LOG_DIRECTORY}/"
    for info in store.list(first, after=version_prefix(start) if start else None):
        leading = info.key[len(first) : len(first) + 1]
        if leading > "9":
            return
        if leading >= "0":
            yield info


def _complete(name: CheckpointName, parts: dict[int, ObjectInfo]) -> CheckpointFiles | None:
    if len(parts) != name.parts:
        return None
    ordered = [parts[number] for number in sorted(parts)]
    return CheckpointFiles(
        version=name.version,
        kind=name.kind,
        keys=tuple(info.key for info in ordered),
        bytes=sum(info.bytes for info in ordered),
        modified_at=max(info.modified_at for info in ordered),
    )
