"""The files of the log, and which of them together make up one version."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError, NotATableError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.last_checkpoint import read_last_checkpoint
from lakehand.formats.delta.log.own_commits import OWN_COMMITS
from lakehand.formats.delta.protocol.actions import Commit, dv_id, parse_commit
from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    OTHER_PATHS,
    CheckpointName,
    CommitName,
    CompactionName,
    commit_key,
    parse_log_name,
    path_in_table,
    version_prefix,
)
from lakehand.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakehand.formats.delta.protocol.names import CheckpointKind
    from lakehand.storage import ObjectInfo, Store

# At one version the later kind wins, because fewer engines could have written it by mistake.
_RANK: dict[CheckpointKind, int] = {"classic": 0, "multipart": 1, "v2": 2}
#: How often a log is listed in which a commit seems to be missing and is not.
_LISTINGS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint: one file, or all its parts, sorted."""

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
    #: Tags of the commits, where the store has them: another tag is another content.
    commit_tags: dict[int, str] = field(default_factory=dict)
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

    def with_checkpoints(self, checkpoints: Iterable[CheckpointFiles]) -> LogListing:
        """Return the listing as if these were its only checkpoints."""
        return replace(self, checkpoints=tuple(checkpoints))

    def newest_checkpoint(self, version: int | None) -> CheckpointFiles | None:
        """Return the best checkpoint at or below `version`."""
        candidates = [c for c in self.checkpoints if version is None or c.version <= version]
        return max(candidates, key=lambda checkpoint: checkpoint.rank, default=None)


def list_log(store: Store, *, start: int = 0, distrusted: Collection[str] = ()) -> LogListing:
    """List the log from version `start` on; checkpoints with a file in `distrusted` do not count.

    A directory on disk that is written to while it is listed may show a commit and not the one
    before it. Then it is listed again: a gap is a gap only if the missing commit is not there.
    """
    store.finish_puts(LOG_DIRECTORY)
    for _ in range(_LISTINGS):
        listing = _list_once(store, start, distrusted)
        gap = _first_gap(listing.commits)
        if gap is None or not store.exists(commit_key(gap)):
            break
    OWN_COMMITS.compare(store.url, listing.commit_bytes)
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
    tags: dict[int, str] = {}
    parts: dict[CheckpointName, dict[int, ObjectInfo]] = {}
    compactions: list[CompactionFile] = []
    for info in _versioned(store, start):
        match parse_log_name(info.key):
            case CommitName(version=version):
                # Delta counts in milliseconds: the time that an engine shows finds the version.
                at = info.modified_at
                commits[version] = at.replace(microsecond=at.microsecond // 1000 * 1000)
                sizes[version] = info.bytes
                if info.etag is not None:
                    # With the time, because some servers have one tag for all that they did not
                    # write themselves.
                    tags[version] = f"{info.etag} {info.modified_at.isoformat()}"
            # One of commits without actions is empty; whether it is, its commits tell for sure.
            case CompactionName(first=first, last=last) if info.bytes > 0:
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
        commit_tags=tags,
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


_SPELLINGS = pa.list_(pa.string())


def decoded_paths(raw: pa.Table) -> pa.ChunkedArray:
    """Return decoded paths; where no path is encoded they share their memory with the raw ones."""
    decoded = raw.column("decoded_path")
    if decoded.null_count == raw.num_rows:
        return raw.column("raw_path")
    return pc.coalesce(decoded, raw.column("raw_path"))


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """Return the identity of a deletion vector; None if there is none."""
    if vector is None:
        return None
    known = {"storageType": vector["storage_type"], "pathOrInlineDv": vector["path_or_inline"]}
    return dv_id({**known, "offset": vector["offset"]})


def paths_in_table(paths: pa.ChunkedArray, table: str) -> pa.ChunkedArray | None:
    """Return `paths` with those that lead into the table by its URL made relative; None: none do.

    Only few are looked at one by one: a table may refer to a million files elsewhere.
    """
    is_absolute = pc.or_(
        pc.starts_with(paths, pattern="/"), pc.match_substring(paths, pattern=":/")
    )
    if not pc.any(is_absolute).as_py():
        return None
    inside = pc.match_substring(paths, pattern=parse_location(table).path)
    chosen = pc.and_(is_absolute, inside).combine_chunks()
    found = paths.filter(chosen).to_pylist()
    relative = pa.array([path_in_table(path, table) for path in found], pa.string())
    if relative.to_pylist() == found:
        return None
    combined = paths.combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(combined, chosen, relative)])


def listed_once(raw: pa.Table, table: str) -> pa.Table:
    """Return the live files of `raw`, each once, with the other spellings of its path.

    Entries of one file with different deleted rows are kept: it is unknown which is right.
    """
    paths = decoded_paths(raw)
    names = paths_in_table(paths, table)
    if names is None:
        return raw.append_column(OTHER_PATHS, pa.nulls(raw.num_rows, _SPELLINGS))
    others: list[list[str] | None] = [None] * raw.num_rows
    dropped: set[int] = set()
    for rows in _several(names):
        # The relative spelling is the one that other engines write.
        kept, *twins = sorted(rows, key=lambda row: (paths[row].as_py() != names[row].as_py(), row))
        same = [row for row in twins if _vector(raw, row) == _vector(raw, kept)]
        others[kept] = [raw["raw_path"][row].as_py() for row in same] or None
        dropped.update(same)
    listed = raw.append_column(OTHER_PATHS, pa.array(others, _SPELLINGS))
    left = [row for row in range(raw.num_rows) if row not in dropped]
    return listed.take(pa.array(left, pa.int64()))


def _several(names: pa.ChunkedArray) -> Sequence[Sequence[int]]:
    """Return the rows of each name that occurs more than once."""
    numbered = pa.table({"name": names, "row": pa.array(np.arange(len(names)))})
    grouped = numbered.group_by("name").aggregate([("row", "list"), ("row", "count")])
    several = grouped.filter(pc.greater(grouped["row_count"], 1))
    found: list[list[int]] = several["row_list"].to_pylist()
    return found


def _vector(raw: pa.Table, row: int) -> str | None:
    return vector_id(raw["deletion_vector"][row].as_py())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedFile:
    """A commit, or a compaction of several, which then counts as the last of them."""

    version: int
    key: str
    bytes: int
    #: None if the store has none; another tag is another content.
    etag: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSegment:
    """The files that make up one version: a checkpoint, if there is one, and later commits."""

    version: int
    checkpoint: CheckpointFiles | None
    #: Versions after the checkpoint, dense up to `version`.
    commits: tuple[int, ...]
    #: Files that stand for several of these commits, oldest first, none overlapping another.
    compactions: tuple[CompactionFile, ...] = ()
    #: When storage took each commit, the one of the checkpoint's own version included.
    commit_modified_at: Mapping[int, datetime] = field(default_factory=dict)
    commit_bytes: Mapping[int, int] = field(default_factory=dict)
    commit_tags: Mapping[int, str] = field(default_factory=dict)

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
                size, tag = self.commit_bytes[version], self.commit_tags.get(version)
                key = commit_key(version)
                files.append(ReplayedFile(version=version, key=key, bytes=size, etag=tag))
        return tuple(sorted(files, key=lambda file: file.version))


def find_segment(
    store: Store,
    *,
    version: int | None = None,
    distrusted: Collection[str] = (),
    listing: LogListing | None = None,
) -> LogSegment:
    """Return the files of `version` (the newest if None).

    `distrusted` names checkpoint files that turned out to be unreadable: older ones, or all
    commits, are read instead. A `listing` of the whole log, where there is one, saves requests.
    """
    if listing is not None:
        return _segment(store, listing, version)
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
        commit_tags=listing.commit_tags,
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
    if store.has_directory(LOG_DIRECTORY):
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
    known = f"it has versions {earliest} to {latest}"
    is_older = earliest is not None and version < earliest
    raise VersionNotFoundError(
        f"version {version} of {store.url} is not in the log; {known}",
        table=store.url,
        version=version,
        earliest=earliest,
        latest=latest,
        hint="ask for one of these" + ("; older ones were cleaned away" if is_older else ""),
    )
