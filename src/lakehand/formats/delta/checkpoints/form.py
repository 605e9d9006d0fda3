"""Which kind of checkpoint a table asks for, and in which form it keeps statistics."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.delta.checkpoints.schema import checkpoint_schema, statistics_type
from lakehand.formats.delta.files.statistics_rules import statistics_rules
from lakehand.formats.delta.protocol.arrow_types import arrow_type
from lakehand.formats.delta.protocol.clustering import clustering_columns
from lakehand.formats.delta.protocol.features import supported_features
from lakehand.formats.delta.protocol.schema import mapping_mode, parse_schema, physical_name
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakehand.formats.delta.log.state import LogState
    from lakehand.formats.delta.protocol.actions import Metadata
    from lakehand.formats.delta.protocol.schema import DeltaType

__all__ = ["CheckpointForm", "checkpoint_form"]

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
