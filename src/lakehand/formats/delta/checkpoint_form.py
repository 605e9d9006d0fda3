"""Which kind of checkpoint a table asks for, and in which form it keeps statistics."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.delta.checkpoint_schema import checkpoint_schema, statistics_type
from lakehand.formats.delta.features import supported_features
from lakehand.formats.delta.schema import arrow_type, physical_name
from lakehand.formats.delta.statistics_rules import statistics_rules
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakehand.formats.delta.actions import Metadata, Protocol
    from lakehand.formats.delta.schema import MappingMode, StructType

__all__ = ["CheckpointForm", "checkpoint_form"]

_JSON_PROPERTY = "delta.checkpoint.writeStatsAsJson"
_STRUCT_PROPERTY = "delta.checkpoint.writeStatsAsStruct"
_POLICY_PROPERTY = "delta.checkpointPolicy"
_CLUSTERING_DOMAIN = "delta.clustering"
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
    #: Type of `partitionValues_parsed`; None: as above, or the table has no partitions.
    partition_struct: pa.StructType | None

    def schema(self) -> pa.Schema:
        """Return the columns of the Parquet files that hold the file actions."""
        return checkpoint_schema(
            statistics_json=self.statistics_json,
            statistics_struct=self.statistics_struct,
            partition_struct=self.partition_struct,
            sidecar=self.is_v2,
        )


def checkpoint_form(
    protocol: Protocol,
    metadata: Metadata,
    *,
    schema: StructType,
    mode: MappingMode,
    domains: Mapping[str, str],
    table: str,
) -> CheckpointForm:
    """Return the form that the table's properties ask for.

    Statistics as structs are on unless the table says otherwise: that is what delta-spark does,
    and readers that know them need not parse JSON.
    """
    features = supported_features(protocol)
    as_json = _is_true(metadata, _JSON_PROPERTY)
    as_struct = _is_true(metadata, _STRUCT_PROPERTY)
    if not (as_json or as_struct) and _COUNTING_FEATURES & set(features):
        as_json = True
        _tell_statistics_are_kept(table)
    return CheckpointForm(
        is_v2=_POLICY_PROPERTY in metadata.configuration
        and metadata.configuration[_POLICY_PROPERTY].lower() == "v2"
        and "v2Checkpoint" in features,
        statistics_json=as_json,
        statistics_struct=_statistics_struct(metadata, schema, mode, domains, features)
        if as_struct
        else None,
        partition_struct=_partition_struct(metadata, schema, mode) if as_struct else None,
    )


def _is_true(metadata: Metadata, name: str) -> bool:
    return metadata.configuration.get(name, "true").lower() == "true"


def _statistics_struct(
    metadata: Metadata,
    schema: StructType,
    mode: MappingMode,
    domains: Mapping[str, str],
    features: Collection[str],
) -> pa.StructType:
    rules = statistics_rules(
        schema,
        metadata.configuration,
        mode=mode,
        partition_columns=metadata.partition_columns,
        clustering_columns=_clustering_columns(domains),
        writer_features=features,
    )
    return statistics_type(rules.leaves, tight_bounds=rules.states_tightness)


def _partition_struct(
    metadata: Metadata, schema: StructType, mode: MappingMode
) -> pa.StructType | None:
    columns = [column for name in metadata.partition_columns if (column := schema.find(name))]
    members = [(physical_name(column, mode=mode), arrow_type(column.type)) for column in columns]
    return pa.struct(members) if members else None


def _clustering_columns(domains: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the physical paths of the clustering columns; names alone are read liberally."""
    configuration = json.loads(domains.get(_CLUSTERING_DOMAIN, "{}"))
    columns = configuration.get("clusteringColumns") or []
    return [(column,) if isinstance(column, str) else tuple(column) for column in columns]


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
