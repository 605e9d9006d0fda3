"""Puts a version into the log, and finds out whether it was committed.

An answer of the store is never believed alone. Clients repeat requests on their own and then report
our own success as "already exists"; answers get lost; and engines that do not use put-if-absent
overwrite versions. So the version is read back every time, and its token decides.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand import errors
from lakehand.formats.delta.commits.commit_info import token_of
from lakehand.formats.delta.log.own_commits import OWN_COMMITS
from lakehand.formats.delta.protocol.actions import Commit, parse_commit
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.observe.steps import Step, reached
from lakehand.storage.retry import RetryPolicy, with_retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

#: Retries while it is unknown whether a version was committed, on top of the store's retries.
_READ_BACK = RetryPolicy(max_retries=5, base_delay=timedelta(milliseconds=200))


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What is in the log after a put."""

    #: The version as it was read back; None if it is still free.
    commit: Commit | None
    #: Whether it is the one that was put.
    ours: bool = False
    #: What the store said about the put; None: that it succeeded.
    failure: errors.StorageError | None = None


def publish(
    store: Store,
    version: int,
    data: bytes,
    *,
    token: str,
    clock: Clock,
    chance: Callable[[], float] = random.random,
) -> Published:
    """Put `data` as `version` unless that version exists, and read the version back.

    Raises CommitUnknownError if it cannot be read back, ConditionalPutError if the store has no
    put-if-absent.
    """
    reached(Step.COMMIT_PREPARED)
    failure = _put(store, version, data)
    reached(Step.COMMIT_PUT)
    commit = _read_back(store, version, clock=clock, chance=chance)
    ours = commit is not None and token_of(commit) == token
    if commit is None and failure is None:
        raise _unknown(store, version, "the store took it, but does not have it")
    if ours:
        OWN_COMMITS.remember(store.url, version, len(data))
        reached(Step.COMMIT_CONFIRMED)
    return Published(commit=commit, ours=ours, failure=failure)


def _put(store: Store, version: int, data: bytes) -> errors.StorageError | None:
    try:
        store.put_if_absent(commit_key(version), data)
    except errors.ConditionalPutError:
        raise
    except errors.StorageError as error:
        return error
    return None


def _read_back(
    store: Store, version: int, *, clock: Clock, chance: Callable[[], float]
) -> Commit | None:
    try:
        data = with_retry(
            lambda: store.get(commit_key(version)), policy=_READ_BACK, clock=clock, chance=chance
        )
    except errors.ObjectNotFoundError:
        return None
    except errors.StorageError as error:
        raise _unknown(store, version, f"it cannot be read back: {error.message}") from error
    return parse_commit(version, data, table=store.url)


def _unknown(store: Store, version: int, why: str) -> errors.CommitUnknownError:
    return errors.CommitUnknownError(
        f"cannot tell whether version {version} of {store.url} was committed: {why}",
        table=store.url,
        expected_version=version,
        hint="keep every file of this commit; when the store responds again, search the log for"
        " the commit's token",
    )
