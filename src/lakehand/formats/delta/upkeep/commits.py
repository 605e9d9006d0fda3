"""The commits of a log, read one by one: what is wrong with each, whatever the others say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, ObjectNotFoundError
from lakehand.formats.delta.protocol.actions import file_key, parse_commit
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.formats.delta.protocol.paths import decode_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakehand.formats.delta.protocol.actions import Commit
    from lakehand.storage import Store

__all__ = ["CommitFacts", "examine_commit", "examine_commits"]

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
        except ObjectNotFoundError:
            # Cleaned away since the log was listed; the rest is looked at one by one.
            yield from _one_by_one(store, versions)
            continue
        for version, text in zip(versions, texts, strict=True):
            yield examine_commit(version, text)


def _one_by_one(store: Store, versions: Iterable[int]) -> Iterator[CommitFacts]:
    for version in versions:
        try:
            text = store.get(commit_key(version))
        except ObjectNotFoundError:
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
    except CorruptLogError as error:
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
    """Return the file of which a commit does not say whether it is there."""
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
