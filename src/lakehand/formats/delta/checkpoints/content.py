"""What goes into the checkpoint of a version: its state, and nothing that has expired."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.checkpoints.form import CheckpointForm, checkpoint_form
from lakehand.formats.delta.checkpoints.rows import file_rows, parse_partitions, parse_statistics
from lakehand.formats.delta.checkpoints.schema import REMOVE_FIELDS
from lakehand.formats.delta.log.file_members import ADD_MEMBERS
from lakehand.formats.delta.log.files import quoted
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import LogSource, open_log_source
from lakehand.formats.delta.log.state import LogState, fold
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.intervals import interval_property
from lakehand.formats.delta.protocol.partition_values import ZONED
from lakehand.formats.delta.protocol.schema import PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lakehand.formats.delta.log.discovery import LogSegment
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

__all__ = ["CheckpointContent", "expired_tombstones_ms", "open_content", "tombstone_retention"]

#: File actions that are held in memory at a time.
BATCH_ROWS = 50_000
_NO_VALUES = "CAST(MAP {} AS MAP(VARCHAR, VARCHAR))"
_TIMESTAMP = PrimitiveType("timestamp")
_TOMBSTONE_RETENTION = "delta.deletedFileRetentionDuration"
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

Action = tuple[str, "Mapping[str, Any]"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointContent:
    """The state of one version: actions that name no file are here, file actions are streamed."""

    version: int
    form: CheckpointForm
    #: Actions that name no file, as (kind, value).
    actions: tuple[Action, ...]
    #: Tombstones from this time or earlier have expired; in milliseconds since 1970.
    expired_ms: int
    source: LogSource

    def file_rows(self) -> Iterator[pa.Table]:
        """Stream live files, then tombstones, as rows of the checkpoint."""
        schema = self.form.schema()
        adds = live_relation(self.source, "add", tuple(ADD_MEMBERS))
        # An add without partition values is against the protocol, and delta-spark stumbles over it.
        values = f"coalesce(partitionValues, {_NO_VALUES}) AS partitionValues"
        for actions in self._stream(f"SELECT * REPLACE ({values}) FROM {adds}"):
            yield file_rows("add", self._complete(actions), schema)
        removes = live_relation(self.source, "remove", tuple(REMOVE_FIELDS))
        alive = f"coalesce(deletionTimestamp, 0) > {self.expired_ms}"
        for actions in self._stream(f"SELECT * FROM {removes} WHERE {alive}"):
            yield file_rows("remove", actions, schema)

    def _stream(self, query: str) -> Iterator[pa.Table]:
        for batch in self.source.stream(query, batch_rows=BATCH_ROWS):
            yield _unchanging(pa.Table.from_batches([batch]))

    def _complete(self, adds: pa.Table) -> pa.Table:
        """Add the typed copies of statistics and partition values that the form asks for."""
        if self.form.statistics_struct is not None:
            parsed = parse_statistics(adds["stats"], self.form.statistics_struct)
            adds = adds.append_column("stats_parsed", parsed)
        if self.form.partition_columns:
            typed = parse_partitions(adds["partitionValues"], self.form.partition_columns)
            adds = adds.append_column("partitionValues_parsed", typed)
        return adds


@contextmanager
def open_content(store: Store, segment: LogSegment, *, clock: Clock) -> Iterator[CheckpointContent]:
    """Give the state of the segment's version; RefusedError if it may not be checkpointed."""
    now = clock.now()
    with open_log_source(store, segment) as source:
        state = fold(source.other_actions(), table=store.url, version=segment.version)
        require_write("checkpoint", state.protocol, state.metadata, table=store.url)
        properties = state.metadata.configuration
        yield CheckpointContent(
            version=segment.version,
            form=_form(source, state),
            actions=tuple(_actions(state, now)),
            expired_ms=expired_tombstones_ms(properties, now),
            source=source,
        )


def expired_tombstones_ms(properties: Mapping[str, str], now: datetime) -> int:
    """Return from which time, and earlier, tombstones have expired; in milliseconds since 1970."""
    return _milliseconds_before(now, tombstone_retention(properties))


def tombstone_retention(properties: Mapping[str, str]) -> timedelta:
    """Return how long checkpoints keep tombstones."""
    return interval_property(properties, _TOMBSTONE_RETENTION, "interval 1 week")


def _form(source: LogSource, state: LogState) -> CheckpointForm:
    form = checkpoint_form(state, table=source.table)
    if not _has_local_timestamps(source, form):
        return form
    # Which instant such a value means depends on its writer's time zone. The typed copy would turn
    # a guess into a fact that readers prune by.
    return replace(form, partition_columns={})


def _has_local_timestamps(source: LogSource, form: CheckpointForm) -> bool:
    """Say whether a partition value is a timestamp that names no time zone."""
    timestamps = [n for n, type_ in form.partition_columns.items() if type_ == _TIMESTAMP]
    if not timestamps:
        return False
    values = [f"nullif(partitionValues[{quoted(name)}], '')" for name in timestamps]
    is_local = " OR ".join(f"NOT regexp_matches({value}, {quoted(ZONED)})" for value in values)
    adds = live_relation(source, "add", ("partitionValues",))
    return bool(source.run(f"SELECT 1 FROM {adds} WHERE {is_local} LIMIT 1"))


def _unchanging(actions: pa.Table) -> pa.Table:
    """Mark actions as what they are in a checkpoint: no change of data."""
    index = actions.column_names.index("dataChange")
    return actions.set_column(index, "dataChange", pa.repeat(False, actions.num_rows))  # noqa: FBT003


def _actions(state: LogState, now: datetime) -> Iterator[Action]:
    yield "protocol", state.protocol.to_json()
    yield "metaData", state.metadata.to_json()
    expired_ms = _expired_transactions_ms(state.metadata.configuration, now)
    for transaction in state.transactions.values():
        updated_ms = transaction.get("lastUpdated")
        # One without a date may be in use: it is kept, because dropping it repeats a batch.
        if updated_ms is None or updated_ms > expired_ms:
            yield "txn", transaction
    for domain, configuration in state.domains.items():
        value = {"domain": domain, "configuration": configuration, "removed": False}
        yield "domainMetadata", value


def _expired_transactions_ms(properties: Mapping[str, str], now: datetime) -> int:
    if _TRANSACTION_RETENTION not in properties:
        return -1
    retention = interval_property(properties, _TRANSACTION_RETENTION, "interval 30 days")
    return _milliseconds_before(now, retention)


def _milliseconds_before(now: datetime, retention: timedelta) -> int:
    # In numbers, because a retention of many centuries leaves the range of dates.
    return int(now.timestamp() * 1000) - retention // timedelta(milliseconds=1)
