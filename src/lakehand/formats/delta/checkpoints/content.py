"""The content of a version's checkpoint, in the form that the table asks for."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.checkpoints.checkpoint_rows import (
    REMOVE_FIELDS,
    checkpoint_schema,
    file_rows,
    parse_partitions,
    parse_statistics,
    statistics_type,
)
from lakehand.formats.delta.log.log_source import LogSource, open_log_source
from lakehand.formats.delta.log.log_state import LogState, fold
from lakehand.formats.delta.log.replay import ADD_MEMBERS, live_relation
from lakehand.formats.delta.protocol.actions import Metadata, interval_property
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.clustering import clustering_columns
from lakehand.formats.delta.protocol.features import require_write, supported_features
from lakehand.formats.delta.protocol.partition_values import ZONED
from lakehand.formats.delta.protocol.schema import (
    PrimitiveType,
    mapping_mode,
    parse_schema,
    physical_name,
)
from lakehand.formats.delta.statistics.merge import statistics_rules
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.formats.delta.protocol.schema import DeltaType
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

_JSON_PROPERTY = "delta.checkpoint.writeStatsAsJson"
_STRUCT_PROPERTY = "delta.checkpoint.writeStatsAsStruct"
_POLICY_PROPERTY = "delta.checkpointPolicy"
#: Features whose readers cannot do without the row count of each file.
_COUNTING_FEATURES = frozenset({"deletionVectors", "rowTracking"})
_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointForm:
    """What the files of a checkpoint look like."""

    is_v2: bool
    statistics_json: bool
    #: Type of `stats_parsed`; None: statistics are not kept as structs.
    statistics_struct: pa.StructType | None
    #: Columns of `partitionValues_parsed` by physical name; empty: there is none.
    partition_columns: Mapping[str, DeltaType]

    def schema(self) -> pa.Schema:
        """Return the columns of the Parquet files that hold the file actions."""
        columns = self.partition_columns.items()
        return checkpoint_schema(
            statistics_json=self.statistics_json,
            statistics_struct=self.statistics_struct,
            partition_struct=pa.struct([(name, arrow_type(type_)) for name, type_ in columns]),
            sidecar=self.is_v2,
        )


def checkpoint_form(state: LogState, *, table: str) -> CheckpointForm:
    """Return the form that the table's properties ask for.

    Statistics as structs are on unless the table says otherwise: that is what delta-spark does,
    and readers that know them need not parse JSON.
    """
    features = supported_features(state.protocol)
    as_json = _is_true(state.metadata, _JSON_PROPERTY)
    as_struct = _is_true(state.metadata, _STRUCT_PROPERTY)
    if not (as_json or as_struct) and _COUNTING_FEATURES & set(features):
        as_json = True
        _tell_statistics_are_kept(table)
    return CheckpointForm(
        is_v2="v2Checkpoint" in features and _policy(state.metadata) == "v2",
        statistics_json=as_json,
        statistics_struct=_statistics_struct(state, features) if as_struct else None,
        partition_columns=_partition_columns(state.metadata) if as_struct else {},
    )


def _is_true(metadata: Metadata, name: str) -> bool:
    return metadata.configuration.get(name, "true").lower() == "true"


def _policy(metadata: Metadata) -> str:
    return metadata.configuration.get(_POLICY_PROPERTY, "classic").lower()


def _statistics_struct(state: LogState, features: Collection[str]) -> pa.StructType:
    configuration = state.metadata.configuration
    rules = statistics_rules(
        parse_schema(state.metadata.schema_string),
        configuration,
        mode=mapping_mode(configuration),
        partition_columns=state.metadata.partition_columns,
        clustering_columns=clustering_columns(state.domains),
        writer_features=features,
    )
    return statistics_type(rules.leaves, tight_bounds=rules.states_tightness)


def _partition_columns(metadata: Metadata) -> dict[str, DeltaType]:
    schema, mode = parse_schema(metadata.schema_string), mapping_mode(metadata.configuration)
    columns = [column for name in metadata.partition_columns if (column := schema.find(name))]
    return {physical_name(column, mode=mode): column.type for column in columns}


def _tell_statistics_are_kept(table: str) -> None:
    log_event(
        _logger,
        logging.WARNING,
        "checkpoint_statistics_kept",
        "%s asks for checkpoints without statistics, but its features need the row count of each"
        " file: statistics are kept as JSON",
        table,
        table=table,
    )


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
    values = [f"nullif(partitionValues[{quote_string(name)}], '')" for name in timestamps]
    is_local = " OR ".join(
        f"NOT regexp_matches({value}, {quote_string(ZONED)})" for value in values
    )
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
