"""Which files of the log together make up one version of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from lakehand.errors import CorruptLogError, NotATableError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.last_checkpoint import read_last_checkpoint
from lakehand.formats.delta.log.listing import LogListing, list_log
from lakehand.formats.delta.protocol.actions import Commit, parse_commit
from lakehand.formats.delta.protocol.names import LOG_DIRECTORY, commit_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from lakehand.formats.delta.log.listing import CheckpointFiles, CompactionFile
    from lakehand.storage import Store

__all__ = [
    "LogSegment",
    "ReplayedFile",
    "find_segment",
    "list_commits",
    "read_commit",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedFile:
    """A commit, or a compaction of several, which then counts as the last of them."""

    version: int
    key: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSegment:
    """The files that make up one version: a checkpoint, if there is one, and what came after."""

    version: int
    checkpoint: CheckpointFiles | None
    #: Versions after the checkpoint, dense up to `version`.
    commits: tuple[int, ...]
    #: Files that stand for several of these commits, oldest first, none overlapping another.
    compactions: tuple[CompactionFile, ...] = ()
    #: When storage took each commit, the one of the checkpoint's own version included.
    commit_modified_at: Mapping[int, datetime] = field(default_factory=dict)
    commit_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def checkpoint_version(self) -> int | None:
        return None if self.checkpoint is None else self.checkpoint.version

    @property
    def replayed(self) -> tuple[ReplayedFile, ...]:
        """The fewest files that hold all commits, oldest first."""
        files = [
            ReplayedFile(version=file.last, key=file.key, bytes=file.bytes)
            for file in self.compactions
        ]
        for version in self.commits:
            if not any(file.first <= version <= file.last for file in self.compactions):
                size = self.commit_bytes[version]
                files.append(ReplayedFile(version=version, key=commit_key(version), bytes=size))
        return tuple(sorted(files, key=lambda file: file.version))


def find_segment(
    store: Store, *, version: int | None = None, distrusted: Collection[str] = ()
) -> LogSegment:
    """Return the files of `version` (the newest if None).

    `distrusted` names checkpoint files that turned out to be unreadable: older ones, or the
    commits from the start, take their place.
    """
    hint = None if distrusted else read_last_checkpoint(store)
    if hint is not None and (version is None or hint.version <= version):
        listing = list_log(store, start=hint.version)
        if listing.newest_checkpoint(version) is not None:
            return _segment(store, listing, version)
    # No hint, or one that names a checkpoint that is not there: only the whole list can tell.
    return _segment(store, list_log(store, distrusted=distrusted), version)


def list_commits(store: Store, after: int) -> tuple[int, ...]:
    """Return the versions above `after` that have a commit file, ascending."""
    listing = list_log(store, start=after + 1)
    return tuple(version for version in sorted(listing.commits) if version > after)


def read_commit(store: Store, version: int) -> Commit:
    """Return one commit; ObjectNotFoundError if it is not, or no longer, there."""
    return parse_commit(version, store.get(commit_key(version)), table=store.url)


def _segment(store: Store, listing: LogListing, version: int | None) -> LogSegment:
    last = listing.last_version
    if last is None:
        _raise_no_log(store)
    target = last if version is None else version
    if target > last or target < 0:
        _raise_version_not_found(store, listing, target)
    checkpoint = listing.newest_checkpoint(target)
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits = tuple(v for v in sorted(listing.commits) if first <= v <= target)
    if checkpoint is None and version is not None and (not commits or commits[0] > 0):
        _raise_version_not_found(store, listing, target)
    require_dense(store, commits, first, target)
    return LogSegment(
        version=target,
        checkpoint=checkpoint,
        commits=commits,
        compactions=_usable(listing.compactions, first, target),
        commit_modified_at={v: at for v, at in listing.commits.items() if first - 1 <= v <= target},
        commit_bytes={version: listing.commit_bytes[version] for version in commits},
    )


def require_dense(store: Store, commits: Sequence[int], first: int, last: int) -> None:
    present = set(commits)
    gap = next((version for version in range(first, last + 1) if version not in present), None)
    if gap is None:
        return
    raise CorruptLogError(
        f"version {gap} is missing from the log of {store.url}, and no complete checkpoint stands "
        f"in for it",
        table=store.url,
        version=gap,
        path=commit_key(gap),
        hint="restore the file from a backup; without it the table's content cannot be known",
    )


def _usable(
    compactions: Sequence[CompactionFile], first: int, last: int
) -> tuple[CompactionFile, ...]:
    """Choose compactions that do not overlap: from the oldest on, always the one that goes far."""
    chosen: list[CompactionFile] = []
    covered = first - 1
    for file in sorted(compactions, key=lambda file: (file.first, -file.last)):
        if file.first > covered and file.last <= last:
            chosen.append(file)
            covered = file.last
    return tuple(chosen)


def _raise_no_log(store: Store) -> NoReturn:
    directories, _ = store.list_directory("")
    if any(name.rstrip("/") == LOG_DIRECTORY for name in directories):
        raise CorruptLogError(
            f"the log of {store.url} is empty: {LOG_DIRECTORY} holds neither a commit nor a "
            f"complete checkpoint",
            table=store.url,
            path=LOG_DIRECTORY,
            hint="the table was never created or its log was deleted; restore it from a backup",
        )
    raise NotATableError(
        f"there is no Delta table at {store.url}: it has no {LOG_DIRECTORY}",
        table=store.url,
        hint="check the path; a table's root is the folder that holds its log",
    )


def _raise_version_not_found(store: Store, listing: LogListing, version: int) -> NoReturn:
    # The listing may start at the newest checkpoint; what is before it can be asked for as well.
    earliest, latest = list_log(store).earliest_version, listing.last_version
    known = f"versions {earliest} to {latest} are there"
    is_older = earliest is not None and version < earliest
    raise VersionNotFoundError(
        f"version {version} of {store.url} is not in the log; {known}",
        table=store.url,
        version=version,
        earliest=earliest,
        latest=latest,
        hint="ask for one of these" + ("; older ones were cleaned away" if is_older else ""),
    )
