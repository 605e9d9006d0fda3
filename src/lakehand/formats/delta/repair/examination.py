"""A log examined file by file, so that a damaged one is diagnosed and not merely refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.formats.delta.checkpoints.comparison import checkpoint_difference
from lakehand.formats.delta.checkpoints.last_checkpoint import (
    check_checkpoint,
    read_last_checkpoint,
)
from lakehand.formats.delta.log.listing import CheckpointFiles, LogListing, list_log
from lakehand.formats.delta.log.snapshot import DeltaState, load_snapshot
from lakehand.formats.delta.protocol.actions import Commit, file_key, parse_commit
from lakehand.formats.delta.protocol.names import (
    LOG_DIRECTORY,
    CheckpointName,
    commit_key,
    decode_path,
    parse_log_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from lakehand.formats.delta.checkpoints.last_checkpoint import CheckpointCheck, LastCheckpoint
    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import ObjectInfo, Store

#: Commits in memory at a time: up to either of these.
_MOST_COMMITS, _MOST_BYTES = 64, 32 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitFacts:
    """One commit, as far as its neighbours and its readers are concerned."""

    version: int
    #: Why the version cannot be put together; None: it can.
    problem: str | None = None
    #: Rules that it breaks although it can be read.
    flaws: tuple[str, ...] = ()
    #: Milliseconds since the epoch that it claims as its time.
    in_commit_timestamp: int | None = None


def examine_commits(store: Store, sizes: Mapping[int, int]) -> Iterator[CommitFacts]:
    """Read the commits of the versions in `sizes`, oldest first, a few at a time."""
    for versions in _batches(sizes):
        try:
            texts = store.get_many([commit_key(version) for version in versions])
        except errors.ObjectNotFoundError:
            # Cleaned away since the log was listed; the rest is looked at one by one.
            yield from _one_by_one(store, versions)
            continue
        for version, text in zip(versions, texts, strict=True):
            yield examine_commit(version, text)


def _one_by_one(store: Store, versions: Iterable[int]) -> Iterator[CommitFacts]:
    for version in versions:
        try:
            text = store.get(commit_key(version))
        except errors.ObjectNotFoundError:
            continue
        yield examine_commit(version, text)


def _batches(sizes: Mapping[int, int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for version in sorted(sizes):
        if batch and (len(batch) == _MOST_COMMITS or size + sizes[version] > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(version)
        size += sizes[version]
    if batch:
        yield batch


def examine_commit(version: int, text: bytes) -> CommitFacts:
    """Say what is wrong with the bytes of a commit."""
    try:
        commit = parse_commit(version, text)
        problem = _contradiction(commit)
        time = commit.in_commit_timestamp
    except errors.CorruptLogError as error:
        return CommitFacts(version=version, problem=str(error.__cause__ or error.message))
    except (KeyError, TypeError, ValueError) as error:
        return CommitFacts(version=version, problem=f"an action lacks a member: {error!r}")
    return CommitFacts(
        version=version,
        problem=problem,
        flaws=tuple(_flaws(commit, text)),
        in_commit_timestamp=time,
    )


def _contradiction(commit: Commit) -> str | None:
    """Return the file that a commit both adds and removes."""
    added, removed = ({file_key(action) for action in side} for side in _sides(commit))
    both = added & removed
    return f"it adds and removes {min(both)[0]!r}" if both else None


def _sides(commit: Commit) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    return commit.adds, commit.removes


def _flaws(commit: Commit, text: bytes) -> Iterator[str]:
    lines = text.rstrip(b"\r\n").split(b"\n")
    blank = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if blank is not None:
        yield f"line {blank} is blank"
    if commit.in_commit_timestamp is not None and not lines[0].startswith(b'{"commitInfo"'):
        yield "it carries its time, but not in its first line"
    for what, actions in zip(("adds", "removes"), _sides(commit), strict=True):
        paths = Counter(decode_path(action["path"]) for action in actions)
        path, count = next(iter(paths.most_common(1)), ("", 0))
        if count > 1:
            yield f"it {what} {path!r} {count} times"
    for name in ("partitionValues", "size"):
        if any(add.get(name) is None for add in commit.adds):
            yield f"it adds a file without {name}"


#: How often a log that others write to is looked at, at most.
_LOOKS = 3
_UNLOADABLE = (
    errors.CorruptFileError,
    errors.CorruptLogError,
    errors.ObjectNotFoundError,
    errors.VersionNotFoundError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BadCheckpoint:
    """A checkpoint that must not be used."""

    files: CheckpointFiles
    reason: str
    #: Whether it can be read, and says something else than the commits.
    differs: bool = False
    #: What it has and the commits lack; None: nothing.
    extra: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogExamination:
    """What is in a log, and what of it can be used."""

    #: All that lies directly in the log, hidden files included.
    objects: tuple[ObjectInfo, ...]
    listing: LogListing
    commits: Mapping[int, CommitFacts]
    #: Versions below the newest that have no commit, though the log claims to have them.
    missing: tuple[int, ...]
    sound: tuple[CheckpointCheck, ...]
    bad: tuple[BadCheckpoint, ...]
    #: Files of checkpoints that are not complete; readers pass them by.
    fragments: tuple[ObjectInfo, ...]
    #: What points to the newest checkpoint; None if nothing that can be read does.
    pointer: LastCheckpoint | None
    #: The newest version that loads as any reader would load it; None if none does.
    snapshot: Snapshot | None = None
    #: Why the newest version, or any, cannot be used, where a feature is the reason.
    refusal: errors.RefusedError | None = None
    #: Why the newest version does not load; None if it does.
    failure: str | None = None
    #: By version: whether it can be put together from sound commits and checkpoints.
    buildable: Mapping[int, bool] = field(default_factory=dict)

    @property
    def state(self) -> DeltaState | None:
        """What the newest version that loads says apart from its files."""
        return None if self.snapshot is None else self.snapshot.native

    @property
    def version(self) -> int | None:
        """The newest version, readable or not."""
        return self.listing.last_version

    @property
    def is_whole(self) -> bool:
        """Whether nothing is amiss that a writer could have caused while the log was read."""
        is_loaded = self.snapshot is not None and self.failure is None
        return is_loaded and not (self.bad_versions or self.bad)

    @property
    def corrupt(self) -> tuple[CommitFacts, ...]:
        return tuple(facts for facts in self.commits.values() if facts.problem)

    @property
    def bad_versions(self) -> tuple[int, ...]:
        """Versions whose commits are missing or unusable, ascending."""
        return tuple(sorted({*self.missing, *(facts.version for facts in self.corrupt)}))

    @property
    def newest_buildable(self) -> int | None:
        """The newest version that could be read if nothing but sound objects were in the log."""
        return max((version for version, can in self.buildable.items() if can), default=None)


def examine_log(store: Store, *, now: datetime) -> LogExamination:
    """Look at every commit and every checkpoint. Nothing but an unreachable store raises.

    A log that changes while it is looked at may seem broken, so it is then looked at again.
    """
    for _ in range(_LOOKS - 1):
        log = _examine(store, now)
        if log.is_whole or list_log(store) == log.listing:
            return log
    return _examine(store, now)


def _examine(store: Store, now: datetime) -> LogExamination:
    objects = tuple(i for i in store.list(f"{LOG_DIRECTORY}/") if i.key.count("/") == 1)
    listing = list_log(store)
    commits = {facts.version: facts for facts in examine_commits(store, listing.commit_bytes)}
    sound, bad = _checkpoints(store, listing, now)
    missing = tuple(_missing(listing, commits))
    buildable = _buildable(listing, commits, [check.version for check in sound])
    newest, refusal, failure = _newest_snapshot(store, listing, commits, bad, buildable)
    return LogExamination(
        objects=objects,
        listing=listing,
        commits=commits,
        missing=missing,
        sound=tuple(sound),
        bad=tuple(bad),
        fragments=tuple(_fragments(objects, listing)),
        pointer=read_last_checkpoint(store),
        snapshot=newest,
        refusal=refusal,
        failure=failure,
        buildable=buildable,
    )


def _checkpoints(
    store: Store, listing: LogListing, now: datetime
) -> tuple[list[CheckpointCheck], list[BadCheckpoint]]:
    """Read every checkpoint, oldest first, each compared with a replay from a sound one."""
    sound: list[CheckpointCheck] = []
    bad: list[BadCheckpoint] = []
    for files in sorted(listing.checkpoints, key=lambda checkpoint: checkpoint.rank):
        check = check_checkpoint(store, files)
        if check.problem is not None:
            bad.append(BadCheckpoint(files=files, reason=check.problem))
            continue
        distrusted = {key for other in bad for key in other.files.keys}
        difference = _difference(store, files, distrusted, now, listing)
        if difference is None:
            sound.append(check)
        else:
            bad.append(difference)
    return sound, bad


def _difference(
    store: Store,
    files: CheckpointFiles,
    distrusted: Collection[str],
    now: datetime,
    listing: LogListing,
) -> BadCheckpoint | None:
    try:
        found = checkpoint_difference(store, files, now=now, distrusted=distrusted, listing=listing)
    except (errors.CorruptFileError, errors.CorruptLogError, errors.ObjectNotFoundError) as error:
        return BadCheckpoint(files=files, reason=error.message)
    if found is None:
        return None
    return BadCheckpoint(files=files, reason=found.reason, differs=True, extra=found.extra)


def _missing(listing: LogListing, commits: Mapping[int, CommitFacts]) -> Iterator[int]:
    """Yield versions that the log claims and has no commit of.

    What lies below the oldest checkpoint was cleaned away, or is about to be; and the commit of
    that checkpoint itself is not needed, if a newer one exists.
    """
    first, last = listing.earliest_version, listing.last_version
    if last is None:
        return
    start = min(commits, default=last) if first is None else first
    for version in range(start, last + 1):
        is_expendable = version == start and version < last
        if version not in commits and not is_expendable:
            yield version


def _buildable(
    listing: LogListing, commits: Mapping[int, CommitFacts], folded: Collection[int]
) -> dict[int, bool]:
    """Say of each version whether a sound base and all commits since are there."""
    last = listing.last_version
    found: dict[int, bool] = {}
    can = False
    for version in range(min([*commits, *folded], default=0), -1 if last is None else last + 1):
        facts = commits.get(version)
        has_commit = facts is not None and facts.problem is None
        can = version in folded or (has_commit and (can or version == 0))
        found[version] = can
    return found


def _newest_snapshot(
    store: Store,
    listing: LogListing,
    commits: Mapping[int, CommitFacts],
    bad: Collection[BadCheckpoint],
    buildable: Mapping[int, bool],
) -> tuple[Snapshot | None, errors.RefusedError | None, str | None]:
    """Load the newest version that loads: the newest of all, else one below what is broken."""
    if listing.last_version is None:
        return None, None, "the log holds neither a commit nor a complete checkpoint"
    broken = {facts.version for facts in commits.values() if facts.problem}
    broken |= {checkpoint.files.version for checkpoint in bad}
    broken |= {version for version, can in buildable.items() if not can}
    candidates = [listing.last_version]
    for limit in sorted(broken, reverse=True):
        below = (version for version, can in buildable.items() if can and version < limit)
        candidates.append(max(below, default=-1))
    failure = None
    for version in dict.fromkeys(number for number in candidates if number >= 0):
        try:
            return load_snapshot(store, version=version), None, failure
        except errors.RefusedError as error:
            return None, error, failure
        except _UNLOADABLE as error:
            failure = failure or error.message
    return None, None, failure


def _fragments(objects: Collection[ObjectInfo], listing: LogListing) -> Iterator[ObjectInfo]:
    complete = {key for checkpoint in listing.checkpoints for key in checkpoint.keys}
    for info in objects:
        if isinstance(parse_log_name(info.key), CheckpointName) and info.key not in complete:
            yield info
