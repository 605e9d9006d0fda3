"""Commits: a change becomes the next version of the table, or it is certain that it does not.

The change is judged against every version that landed since its snapshot (`conflicts`), written for
the next free version (`draft`), put there and read back (`publish`). A lost race starts over with
what the winner leaves of the change. The token stays the same over all attempts, and no further
version is tried before the last one is known to be of another writer: so a change is committed
at most once, whatever answers get lost.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehand import errors
from lakehand.formats.delta.commits.change_rules import check_change
from lakehand.formats.delta.commits.commit_info import token_of
from lakehand.formats.delta.commits.conflicts import holds_transaction, rebase
from lakehand.formats.delta.commits.draft import draft_commit
from lakehand.formats.delta.commits.publish import publish
from lakehand.formats.delta.log.listing import list_commits
from lakehand.formats.delta.protocol.actions import Commit, parse_commit
from lakehand.formats.delta.protocol.names import commit_key, decode_path
from lakehand.model.work import Change, Receipt
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock
from lakehand.settings import Settings
from lakehand.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakehand.formats.delta.commits.head import Head
    from lakehand.storage import Store

_logger = get_logger(__name__)
#: Commits that are read at the same time.
_READ_AHEAD = 16
#: Waits after a lost race: short, because the winner is done already, but never in step with it.
_CONTENTION = RetryPolicy(
    base_delay=timedelta(milliseconds=10), max_delay=timedelta(seconds=1), jitter=1.0
)


def commit_change(
    store: Store,
    change: Change,
    *,
    token: str,
    head: Head,
    settings: Settings | None = None,
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
) -> Receipt:
    """Commit `change`, which was made from `head`, and return what was committed.

    Raises CommitConflictError or ReplanError (nothing was written) or CommitUnknownError (keep
    every file). A change whose token is in the log already is not committed again.
    """
    if not token:
        raise errors.ValidationError(
            "a commit needs a token, by which it is found again", field="token"
        )
    check_change(change, head)
    attempts = _Attempts(
        store,
        change,
        head,
        token=token,
        settings=settings or Settings(properties=head.metadata.configuration),
        clock=clock or SystemClock(),
        chance=chance,
    )
    return attempts.run()


def find_commit(store: Store, token: str, *, after: int) -> int | None:
    """Return the version above `after` that carries `token`; None if it is certain there is none.

    If versions in between are no longer in the log, CorruptLogError: the answer is unknown.
    """
    for commit in _read_commits(store, _dense_versions(store, after=after)):
        if token_of(commit) == token:
            return commit.version
    return None


class _Attempts:
    """One change on its way into the log."""

    def __init__(
        self,
        store: Store,
        change: Change,
        head: Head,
        *,
        token: str,
        settings: Settings,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._store = store
        self._original = change
        self._change = change
        self._head = head
        self._token = token
        self._limit: int = settings.commit_attempts
        self._clock = clock
        self._chance = chance
        self._deadline = clock.monotonic() + settings.commit_timeout.total_seconds()
        #: Puts that did not become a version.
        self._losses = 0
        #: Whether others had committed since the snapshot, before the first put.
        self._started_behind = False
        #: A put of the next version got no answer, and that version is still free: it may land yet.
        self._unanswered: errors.StorageError | None = None

    def run(self) -> Receipt:
        if self._is_in_table_already():
            return Receipt(version=self._head.version, already_committed=True)
        while True:
            try:
                receipt = self._catch_up() or self._try_next_version()
                if receipt is not None:
                    return receipt
                self._give_up_if_exhausted()
            except errors.LakehandError as error:
                # Whatever went wrong since, a put that was not answered may still land.
                if self._unanswered is None or isinstance(error, errors.CommitUnknownError):
                    raise
                raise self._unknown() from error
            self._clock.sleep(_CONTENTION.delay_seconds(self._losses, chance=self._chance()))

    def _is_in_table_already(self) -> bool:
        mark = self._change.transaction
        return mark is not None and mark.is_in(self._head.transactions)

    def _catch_up(self) -> Receipt | None:
        """Judge the change against what landed since; a receipt if it turns out to be there."""
        winners = _dense_versions(self._store, after=self._head.version)
        for winner in _read_commits(self._store, winners):
            receipt = self._meet(winner)
            if receipt is not None:
                return receipt
        self._started_behind |= bool(winners) and not self._losses
        return None

    def _meet(self, winner: Commit) -> Receipt | None:
        """Read the version after the head: this commit, or one to rebase over."""
        if token_of(winner) == self._token:
            return self._receipt(winner)
        # The version is another writer's now, so an earlier put of this one can no longer succeed.
        self._unanswered = None
        if holds_transaction(self._change, winner, self._head):
            return Receipt(version=winner.version, attempts=self._tries, already_committed=True)
        self._change = rebase(self._change, self._head, winner)
        self._head = self._head.after(winner)
        return None

    def _try_next_version(self) -> Receipt | None:
        version = self._head.version + 1
        now_ms = int(self._clock.now().timestamp() * 1000)
        data = draft_commit(self._change, self._head, token=self._token, now_ms=now_ms)
        published = publish(
            self._store, version, data, token=self._token, clock=self._clock, chance=self._chance
        )
        if published.ours and published.commit is not None:
            return self._receipt(published.commit)
        self._losses += 1
        if published.commit is None:
            self._note_silence(published.failure)
            return None
        if published.failure is None:
            _log_overwritten(self._store, version)
        return self._meet(published.commit)

    def _note_silence(self, failure: errors.StorageError | None) -> None:
        """Remember a put that got no answer; raise one that was answered with a clear no."""
        if failure is None:
            return
        if not (failure.retryable or isinstance(failure, errors.ObjectExistsError)):
            raise failure
        self._unanswered = failure

    @property
    def _tries(self) -> int:
        return 1 + self._losses + self._started_behind

    def _give_up_if_exhausted(self) -> None:
        if self._losses < self._limit and self._clock.monotonic() < self._deadline:
            return
        raise errors.CommitConflictError(
            f"other writers were faster {self._losses} times in a row on {self._store.url}",
            table=self._store.url,
            expected_version=self._change.base_version,
            actual_version=self._head.version,
            hint="nothing was written; try again, or raise commit_attempts and commit_timeout",
        )

    def _unknown(self) -> errors.CommitUnknownError:
        version = self._head.version + 1
        return errors.CommitUnknownError(
            f"cannot tell whether version {version} of {self._store.url} was committed: the store"
            " did not confirm it",
            table=self._store.url,
            expected_version=version,
            hint="keep every file of this commit, and search the log for its token before a retry",
        )

    def _receipt(self, commit: Commit) -> Receipt:
        """Return what `commit`, as it is in the log, did of the change."""
        removed = {decode_path(remove["path"]) for remove in commit.removes}
        dropped = [
            replacement.group
            for replacement in self._original.replacements
            if removed.isdisjoint(file.path for file in replacement.removes)
        ]
        receipt = Receipt(
            version=commit.version,
            dropped=tuple(dropped),
            attempts=self._tries,
            files_added=len(commit.adds),
            files_removed=len(commit.removes),
        )
        _log_success(self._store, self._original, receipt)
        return receipt


def _dense_versions(store: Store, *, after: int) -> tuple[int, ...]:
    """Return the versions above `after`, of which none may be missing; nor may `after` itself."""
    versions = tuple(list_commits(store, after - 1))
    expected = tuple(range(after, after + len(versions)))
    if versions and versions == expected:
        return versions[1:]
    missing = next((v for v in expected if v not in set(versions)), after)
    raise errors.CorruptLogError(
        f"version {missing} is missing from the log of {store.url}",
        table=store.url,
        version=missing,
        hint="the log was cleaned or the table was replaced concurrently; nothing was written",
    )


def _read_commits(store: Store, versions: Sequence[int]) -> Iterator[Commit]:
    """Yield commits by version, reading some of them ahead."""
    for start in range(0, len(versions), _READ_AHEAD):
        batch = versions[start : start + _READ_AHEAD]
        texts = store.get_many([commit_key(version) for version in batch])
        for version, text in zip(batch, texts, strict=True):
            yield parse_commit(version, text, table=store.url)


def _log_overwritten(store: Store, version: int) -> None:
    log_event(
        _logger,
        logging.WARNING,
        "commit_overwritten",
        "Version %d of %s was overwritten by a writer that does not use put-if-absent",
        version,
        store.url,
        table=store.url,
        version=version,
    )


def _log_success(store: Store, change: Change, receipt: Receipt) -> None:
    log_event(
        _logger,
        logging.INFO,
        "commit_succeeded",
        "Committed version %d of %s: %s, %d files added, %d removed",
        receipt.version,
        store.url,
        change.operation,
        receipt.files_added,
        receipt.files_removed,
        table=store.url,
        version=receipt.version,
        operation=change.operation,
        attempts=receipt.attempts,
        dropped=list(receipt.dropped),
    )
