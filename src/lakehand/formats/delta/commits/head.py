"""The newest version of a table, as far as the next commit must know it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Self

from lakehand.errors import CorruptLogError, ObjectNotFoundError
from lakehand.formats.delta.commits.row_tracking import NO_ROW_IDS, high_water_mark
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.actions import parse_commit, transaction_versions
from lakehand.formats.delta.protocol.features import uses_in_commit_timestamps
from lakehand.formats.delta.protocol.names import commit_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.actions import Commit, Metadata, Protocol
    from lakehand.storage import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What a new version builds on."""

    #: URL of the table, for messages.
    table: str
    version: int
    protocol: Protocol
    metadata: Metadata
    row_id_high_water_mark: int = NO_ROW_IDS
    #: Time that the newest commit claims for itself; None where it claims none.
    in_commit_timestamp: int | None = None
    #: Newest version of every application that writes exactly once.
    transactions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: DeltaState) -> Self:
        """Return the head of a table whose newest version is the one of `state`."""
        domains = [{"domain": name, "configuration": text} for name, text in state.domains.items()]
        transactions = transaction_versions(
            state.transactions.values(), table=state.store.url, version=state.segment.version
        )
        return cls(
            table=state.store.url,
            version=state.segment.version,
            protocol=state.protocol,
            metadata=state.metadata,
            row_id_high_water_mark=high_water_mark(domains),
            in_commit_timestamp=state.in_commit_timestamp,
            transactions=transactions,
        )

    @property
    def uses_in_commit_timestamps(self) -> bool:
        return uses_in_commit_timestamps(self.protocol, self.metadata)

    def after(self, commit: Commit) -> Head:
        """Return the head once `commit`, the next version, is in the log."""
        seen = {txn["appId"]: int(txn["version"]) for txn in commit.transactions}
        return replace(
            self,
            version=commit.version,
            protocol=commit.protocol or self.protocol,
            metadata=commit.metadata or self.metadata,
            # The mark never falls: an id that was handed out once is not handed out again.
            row_id_high_water_mark=max(
                self.row_id_high_water_mark, high_water_mark(commit.domains)
            ),
            in_commit_timestamp=commit.in_commit_timestamp,
            transactions={**self.transactions, **seen},
        )

    def next_timestamp(self, now_ms: int) -> int:
        """Return the time of the next commit: now, but later than this version's own time."""
        if not self.uses_in_commit_timestamps:
            return now_ms
        if self.in_commit_timestamp is None:
            raise CorruptLogError(
                f"version {self.version} of {self.table} does not say when it was committed, though"
                " the table keeps the time in each commit",
                table=self.table,
                version=self.version,
                hint="the commit was written by an engine that breaks the protocol; nothing more"
                " can be committed safely",
            )
        return max(now_ms, self.in_commit_timestamp + 1)


#: More commits than this are no longer quicker to read one by one.
_MOST_COMMITS = 64


class Heads:
    """Heads of one table. A writer that commits often pays for the commits since its last one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[Head, bytes] | None = None

    @property
    def known(self) -> Head | None:
        """The head that was looked at last."""
        return self._known[0] if self._known is not None else None

    def at(self, version: int) -> Head:
        """Return the head that `version` is, or was."""
        rolled = self._roll_forward(version)
        if rolled is not None:
            return rolled
        head = Head.of(load_state_at(self._store, version=version))
        self.remember(head)
        return head

    def _roll_forward(self, version: int) -> Head | None:
        if self._known is None:
            return None
        known, text = self._known
        if not known.version <= version <= known.version + _MOST_COMMITS:
            return None
        versions = range(known.version, version + 1)
        try:
            found, *newer = self._store.get_many([commit_key(v) for v in versions])
        except ObjectNotFoundError:
            return None
        if found != text:
            # Another table has taken the place of the one that was read.
            return None
        commits = (parse_commit(v, data) for v, data in zip(versions[1:], newer, strict=True))
        head = reduce(Head.after, commits, known)
        self._known = (head, newer[-1] if newer else text)
        return head

    def remember(self, head: Head) -> None:
        """Take a head that was read otherwise, to start the next one from."""
        try:
            self._known = (head, self._store.get(commit_key(head.version)))
        except ObjectNotFoundError:
            # A checkpoint stands for the version; its own commit was cleaned away.
            self._known = None
