"""The newest version of a table, as far as the next commit must know it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.commits.row_tracking import NO_ROW_IDS, high_water_mark
from lakehand.formats.delta.protocol.actions import transaction_versions
from lakehand.formats.delta.protocol.activity import uses_in_commit_timestamps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.actions import Commit, Metadata, Protocol

__all__ = ["Head"]


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
