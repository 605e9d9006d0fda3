"""A Delta table at one version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.formats.delta.log.commit_times import from_milliseconds, version_at
from lakehand.formats.delta.log.file_table import read_file_table
from lakehand.formats.delta.log.listing import read_commit
from lakehand.formats.delta.log.replay import live_removes
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.log.state import fold, load_soundly
from lakehand.formats.delta.protocol.actions import transaction_versions
from lakehand.formats.delta.protocol.arrow_types import to_arrow
from lakehand.formats.delta.protocol.features import require_read
from lakehand.formats.delta.protocol.schema import (
    constraints_of,
    mapping_mode,
    parse_schema,
    row_rules,
)
from lakehand.model.snapshot import Snapshot
from lakehand.model.table_head import TableHead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any

    import pyarrow as pa

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.formats.delta.log.source import LogSource
    from lakehand.formats.delta.log.state import LogState
    from lakehand.formats.delta.protocol.actions import Metadata, Protocol
    from lakehand.formats.delta.protocol.schema import MappingMode, StructType
    from lakehand.storage import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaState:
    """What only Delta knows of a version."""

    protocol: Protocol
    metadata: Metadata
    schema: StructType
    mapping_mode: MappingMode
    #: Newest `txn` action of every application.
    transactions: Mapping[str, Mapping[str, Any]]
    #: Configuration of every domain.
    domains: Mapping[str, str]
    segment: LogSegment
    #: Milliseconds since the epoch that the commit claims as its time; None where it claims none.
    in_commit_timestamp: int | None
    store: Store

    def tombstones(self) -> pa.Table:
        """Read the files that were removed and are still remembered, as the log spells them."""
        with live_removes(self.store, self.segment) as reader:
            return reader.read_all()


def load_snapshot(
    store: Store,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    statistics: Sequence[str] = (),
    partition_time_zone: str = "UTC",
) -> Snapshot:
    """Return the table at `version`, or as it was at `timestamp`, or now.

    `statistics` names the columns whose bounds are wanted; parsing them costs time.
    """
    if timestamp is not None:
        version = version_at(store, timestamp)
    return load_soundly(
        store, version, lambda segment: _load(store, segment, statistics, partition_time_zone)
    )


def load_state_at(store: Store, *, version: int | None = None) -> DeltaState:
    """Return what `version` (the newest if None) says apart from its files."""
    return load_soundly(store, version, lambda segment: load_state(store, segment))


def _load(store: Store, segment: LogSegment, statistics: Sequence[str], time_zone: str) -> Snapshot:
    with open_log_source(store, segment) as source:
        state = _read_state(source, store)
        require_read(state.protocol, state.metadata, table=store.url, operation="inspect")
        files = read_file_table(
            source, state.schema, state.metadata, statistics=statistics, time_zone=time_zone
        )
    return Snapshot(
        table=store.url,
        version=segment.version,
        at=_committed_at(segment, state.in_commit_timestamp),
        schema=to_arrow(state.schema),
        partition_columns=state.metadata.partition_columns,
        files=files,
        properties=state.metadata.configuration,
        native=state,
        table_id=state.metadata.id,
        rules=_rules(state),
        checkpoint_version=segment.checkpoint_version,
    )


def table_head(state: DeltaState) -> TableHead:
    """Return what writers must know of the version of `state`."""
    return TableHead(
        table=state.store.url,
        version=state.segment.version,
        schema=to_arrow(state.schema),
        partition_columns=tuple(state.metadata.partition_columns),
        row_rules=row_rules(state.metadata, state.schema, table=state.store.url),
        properties=state.metadata.configuration,
        table_id=state.metadata.id,
        rules=_rules(state),
        transactions=transaction_versions(
            state.transactions.values(), table=state.store.url, version=state.segment.version
        ),
        native=state,
    )


def _rules(state: DeltaState) -> str:
    """Return what files and rows must be like; without constraints as it ever was."""
    constraints = constraints_of(state.metadata)
    rules = [state.protocol.to_json(), state.metadata.lasting_schema()]
    return json.dumps([*rules, constraints] if constraints else rules)


def load_state(store: Store, segment: LogSegment) -> DeltaState:
    """Return what a segment says apart from its files."""
    with open_log_source(store, segment) as source:
        return _read_state(source, store)


def _read_state(source: LogSource, store: Store) -> DeltaState:
    segment = source.segment
    folded = fold(source.other_actions(), table=store.url, version=segment.version)
    return DeltaState(
        protocol=folded.protocol,
        metadata=folded.metadata,
        schema=parse_schema(folded.metadata.schema_string),
        mapping_mode=mapping_mode(folded.metadata.configuration),
        transactions=folded.transactions,
        domains=folded.domains,
        segment=segment,
        in_commit_timestamp=_in_commit_timestamp(store, segment, folded),
        store=store,
    )


def _in_commit_timestamp(store: Store, segment: LogSegment, state: LogState) -> int | None:
    if not state.uses_in_commit_timestamps:
        return None
    if state.commit_info is None and segment.version in segment.commit_modified_at:
        return read_commit(store, segment.version).in_commit_timestamp
    value = (state.commit_info or {}).get("inCommitTimestamp")
    return None if value is None else int(value)


def _committed_at(segment: LogSegment, in_commit_timestamp: int | None) -> datetime:
    if in_commit_timestamp is not None:
        return from_milliseconds(in_commit_timestamp)
    if segment.version in segment.commit_modified_at:
        return segment.commit_modified_at[segment.version]
    # The commit of a checkpoint's own version may be cleaned away.
    return segment.checkpoint.modified_at  # type: ignore[union-attr]
