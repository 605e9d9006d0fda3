"""The newest version of a table as far as the next commit needs it, and its row ids."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import CorruptLogError, ObjectNotFoundError
from lakehand.formats.delta.log.log_source import known_commit
from lakehand.formats.delta.log.snapshot import DeltaState, load_state_at
from lakehand.formats.delta.protocol.actions import load_json, parse_commit, transaction_versions
from lakehand.formats.delta.protocol.features import uses_in_commit_timestamps
from lakehand.formats.delta.protocol.names import commit_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakehand.formats.delta.protocol.actions import Commit, Metadata, Protocol
    from lakehand.storage import Store

# Row ids

ROW_TRACKING_DOMAIN = "delta.rowTracking"
#: High-water mark of a table that never handed out a row id.
NO_ROW_IDS = -1
#: Row ids are signed integers of 64 bits.
_ROW_IDS_END = 2**63

_FEATURE = "rowTracking"
_ENABLED = "delta.enableRowTracking"
_SUSPENDED = "delta.rowTrackingSuspended"


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Say whether every new file must get row ids, be they used yet or not."""
    listed = _FEATURE in (protocol.writer_features or ())
    return listed and metadata.configuration.get(_SUSPENDED, "false").lower() != "true"


def preserves_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Say whether rows must keep their ids when they move to another file."""
    enabled = metadata.configuration.get(_ENABLED, "false").lower() == "true"
    return enabled and assigns_row_ids(protocol, metadata)


def high_water_mark(domains: Iterable[Mapping[str, Any]]) -> int:
    """Return the highest row id that these domain actions say was handed out."""
    marks = [
        _read_mark(domain.get("configuration") or "")
        for domain in domains
        if domain["domain"] == ROW_TRACKING_DOMAIN and not domain.get("removed", False)
    ]
    return max(marks, default=NO_ROW_IDS)


def _read_mark(configuration: str) -> int:
    try:
        return _count(load_json(configuration)["rowIdHighWaterMark"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"the table's highest row id cannot be read from {configuration!r}"
        raise CorruptLogError(message) from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is no count")
    return value


def assign_row_ids(
    adds: Iterable[Mapping[str, Any]], *, mark: int, version: int
) -> tuple[list[dict[str, Any]], int]:
    """Return `adds` with row ids above `mark`, and the new mark.

    A file with a base row id was in the table before, and keeps its row ids.
    """
    numbered: list[dict[str, Any]] = []
    for add in adds:
        if "baseRowId" in add:
            numbered.append(dict(add))
            continue
        numbered.append({**add, "baseRowId": mark + 1, "defaultRowCommitVersion": version})
        mark += physical_rows(add)
    if mark >= _ROW_IDS_END:
        raise CorruptLogError(
            f"the table's row ids are used up: the next would be {mark}",
            hint="nothing was written; the high-water mark of row ids in the log is wrong",
        )
    return numbered, mark


def physical_rows(add: Mapping[str, Any]) -> int:
    """Return how many rows, deleted ones included, the statistics of a file say it holds."""
    try:
        return _count(load_json(add["stats"])["numRecords"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"file {add['path']!r} has no row count in its statistics; this table needs one"
        raise CorruptLogError(message, path=add["path"]) from error


def high_water_mark_action(mark: int) -> dict[str, Any]:
    configuration = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
    return {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": False}


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
        #: The newest version as it was read for another purpose.
        self._expected: DeltaState | None = None

    @property
    def known(self) -> Head | None:
        """The head that was looked at last."""
        return self._known[0] if self._known is not None else None

    def expect(self, state: DeltaState) -> None:
        """Take the newest version as it was read: the next commit may build on it."""
        self._expected = state

    def at(self, version: int) -> Head:
        """Return the head that `version` is, or was."""
        self._take_expected(version)
        rolled = self._roll_forward(version)
        if rolled is not None:
            return rolled
        head = Head.of(load_state_at(self._store, version=version))
        self.remember(head)
        return head

    def _take_expected(self, version: int) -> None:
        """Start from what was read, if its commit is at hand: `_roll_forward` compares it."""
        expected, self._expected = self._expected, None
        if expected is None or expected.segment.version != version:
            return
        text = known_commit(self._store, expected.segment)
        if text is not None:
            self._known = (Head.of(expected), text)

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
            # Another table has replaced the one that was read.
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
