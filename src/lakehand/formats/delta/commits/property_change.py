"""Changes of an existing table's properties, features and clustering columns: pure.

The protocol is upgraded as the Delta protocol says: a property that needs a feature adds it, with
the features that it depends on; features that older protocol versions imply are listed by name.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand import errors
from lakehand.formats.delta.commits import table_properties
from lakehand.formats.delta.commits.create import require_writable, row_tracking_columns
from lakehand.formats.delta.commits.schema_change import lift_protocol
from lakehand.formats.delta.protocol.actions import interval_property
from lakehand.formats.delta.protocol.clustering import CLUSTERING_DOMAIN, clustering_names
from lakehand.formats.delta.protocol.features import (
    ROW_ID_PROPERTY,
    ROW_VERSION_PROPERTY,
    supported_features,
)
from lakehand.formats.delta.protocol.schema import MappingMode, is_constraint, mapping_mode
from lakehand.formats.delta.statistics.merge import has_bounds, statistics_rules
from lakehand.model.order import parse_terms
from lakehand.model.work import Change, PropertyPlan, PropertyWish
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.actions import Metadata, Protocol
    from lakehand.formats.delta.protocol.schema import Leaf, StructType
    from lakehand.model.snapshot import Snapshot

_MAPPING_MODE = "delta.columnMapping.mode"
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_LOG_RETENTION = "delta.logRetentionDuration"
_FILE_RETENTION = "delta.deletedFileRetentionDuration"
#: Properties that engines set themselves: without them, files or times would be misread.
_INTERNAL = (
    _MAPPING_MODE,
    _MAX_COLUMN_ID,
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    ROW_ID_PROPERTY,
    ROW_VERSION_PROPERTY,
)
#: Names that Spark reserves: no statement can change them.
_RESERVED = frozenset({"provider", "location", "owner", "external", "is_managed_location"})
#: Features whose tables need more than the feature in their protocol.
_NOT_BY_NAME = ("iceberg", "coordinatedCommits", "checkpointProtection")
#: Delta allows no more.
_MAX_CLUSTERING_COLUMNS = 4
_FORBIDS_VECTORS = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.compatibility.symlinkFormatManifest.enabled",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """What the table is to be."""

    metadata: Metadata
    features: frozenset[str]
    domains: tuple[Mapping[str, Any], ...] = ()


def plan_properties(snapshot: Snapshot, wish: PropertyWish) -> PropertyPlan:
    """Return the change that fulfils `wish`; `native` is empty if the table already does.

    Raises ValidationError for values and columns that do not exist, RefusedError for what cannot
    be changed on an existing table.
    """
    state: DeltaState = snapshot.native
    if wish.cluster_by is not None:
        target, operation, parameters = _clustering(state, wish.cluster_by)
    elif wish.unset:
        target, operation, parameters = _unset(state, wish)
    else:
        target, operation, parameters = _set(state, wish)
    target = _with_row_tracking(snapshot, target)
    protocol = _protocol(state, target)
    change = Change(
        kind="metadata",
        base_version=snapshot.version,
        operation=operation,
        parameters=parameters,
        native=tuple(_actions(state, target, protocol)),
        table_id=snapshot.table_id,
    )
    return PropertyPlan(
        change=change,
        properties=target.metadata.configuration,
        features=supported_features(protocol),
        clustering_columns=_clustering_after(state, target),
    )


def _actions(
    state: DeltaState, target: _Target, protocol: Protocol
) -> Iterable[Mapping[str, Mapping[str, Any]]]:
    if protocol != state.protocol:
        yield {"protocol": protocol.to_json()}
    if target.metadata != state.metadata:
        yield {"metaData": target.metadata.to_json()}
    yield from ({"domainMetadata": domain} for domain in target.domains)


def _clustering_after(state: DeltaState, target: _Target) -> tuple[str, ...]:
    said = {domain["domain"]: domain["configuration"] for domain in target.domains}
    return clustering_names({**state.domains, **said}, state.schema, mode=state.mapping_mode)


# Properties


def _set(state: DeltaState, wish: PropertyWish) -> tuple[_Target, str, dict[str, Any]]:
    table = state.store.url
    asked = {
        table_properties.canonical_name(name): _text(name, value)
        for name, value in wish.set.items()
    }
    features = frozenset(table_properties.features_asked_for(asked) | _required(wish.features))
    stored = {
        name: text
        for name, text in asked.items()
        if not name.startswith(table_properties.FEATURE_PREFIX)
    }
    for name, text in stored.items():
        if is_constraint(name):
            raise _refusal(
                table, name, "existing rows would have to be checked", "ALTER TABLE ADD CONSTRAINT"
            )
        if name.lower() in _RESERVED:
            message = f"property {name} is reserved by Spark"
            raise errors.ValidationError(message, field=name, hint="choose another name")
        table_properties.check_property(name, text, operation="set_properties")
    if "clustering" in features:
        message = "clustering columns are set by cluster_by"
        raise errors.ValidationError(message, field="clustering", hint="call cluster_by")
    configuration = {**state.metadata.configuration, **stored}
    _check_together(configuration, stored, table)
    metadata = replace(state.metadata, configuration=configuration)
    metadata, mapped = _map_columns(state, metadata)
    named = {f"{table_properties.FEATURE_PREFIX}{name}": "supported" for name in wish.features}
    parameters = {"properties": {**asked, **named}}
    return _Target(metadata=metadata, features=features | mapped), "SET TBLPROPERTIES", parameters


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    message = f"property {name} must be a string, number or boolean, not {type(value).__name__}"
    raise errors.ValidationError(message, field=name)


def _required(names: Sequence[str]) -> set[str]:
    return set(names) | table_properties.required_features(names)


def _check_together(configuration: Mapping[str, str], changed: Collection[str], table: str) -> None:
    """Refuse values that lakehand cannot read, or that do not go together with the others."""
    # The others are left alone: a table with two invalid values can be corrected one by one.
    Settings(properties={name: configuration[name] for name in changed if name in configuration})
    if _LOG_RETENTION in changed or _FILE_RETENTION in changed:
        log = interval_property(configuration, _LOG_RETENTION, "interval 30 days")
        files = interval_property(configuration, _FILE_RETENTION, "interval 1 week")
        if log < files:
            raise errors.ValidationError(
                f"{_LOG_RETENTION} must be at least as long as {_FILE_RETENTION}",
                field=_LOG_RETENTION if _LOG_RETENTION in changed else _FILE_RETENTION,
                value=str(log),
            )
    vectors = "delta.enableDeletionVectors"
    asked = vectors in changed and _is_true(configuration, vectors)
    other = next((name for name in _FORBIDS_VECTORS if _is_true(configuration, name)), None)
    if asked and other is not None:
        raise _refusal(table, vectors, f"the table has {other}", "ALTER TABLE")


def _is_true(configuration: Mapping[str, str], name: str) -> bool:
    return configuration.get(name, "").lower() == "true"


def _map_columns(state: DeltaState, metadata: Metadata) -> tuple[Metadata, frozenset[str]]:
    """Turn on column mapping: columns of existing files keep their names as physical names."""
    before, after = (mapping_mode(one.configuration) for one in (state.metadata, metadata))
    if before is after:
        return metadata, frozenset()
    if before is not MappingMode.NONE or after is not MappingMode.NAME:
        reason = f"the mode cannot change from {before.value} to {after.value} without a rewrite"
        raise _refusal(state.store.url, _MAPPING_MODE, reason, "ALTER TABLE")
    if table_properties.has_column_ids(state.schema):
        reason = "columns have ids although the table does not map columns"
        raise _refusal(state.store.url, _MAPPING_MODE, reason, "ALTER TABLE")
    schema, highest = table_properties.assign_column_ids(
        state.schema, table_id=metadata.id, keeps_names=True
    )
    configuration = {**metadata.configuration, _MAX_COLUMN_ID: str(highest)}
    mapped = replace(metadata, schema_string=schema.to_json(), configuration=configuration)
    return mapped, frozenset({"columnMapping"})


def _unset(state: DeltaState, wish: PropertyWish) -> tuple[_Target, str, dict[str, Any]]:
    names = [table_properties.canonical_name(name) for name in wish.unset]
    have = state.metadata.configuration
    missing = next((name for name in names if name not in have), None)
    if missing is not None and not wish.if_exists:
        message = f"{state.store.url} has no property {missing}"
        hint = "pass if_exists=True to ignore properties that are not set"
        raise errors.ValidationError(message, field=missing, hint=hint)
    internal = next((name for name in names if name in _INTERNAL and name in have), None)
    if internal is not None:
        reason = "readers need it to read the table"
        raise _refusal(state.store.url, internal, reason, "ALTER TABLE DROP FEATURE")
    kept = {name: text for name, text in have.items() if name not in names}
    _check_together(kept, names, state.store.url)
    target = _Target(
        metadata=replace(state.metadata, configuration=kept),
        features=frozenset(),
    )
    parameters = {"properties": names, "ifExists": wish.if_exists}
    return target, "UNSET TBLPROPERTIES", parameters


# Clustering columns


def _clustering(state: DeltaState, columns: Sequence[str]) -> tuple[_Target, str, dict[str, Any]]:
    mode = state.mapping_mode
    before = clustering_names(state.domains, state.schema, mode=mode)
    leaves = _clustering_leaves(state, columns)
    names = ",".join(".".join(leaf.path) for leaf in leaves)
    parameters = {"oldClusteringColumns": ",".join(before), "newClusteringColumns": names}
    text = _domain_text([leaf.physical_path for leaf in leaves])
    is_clustered = "clustering" in supported_features(state.protocol)
    if (not leaves and not is_clustered) or state.domains.get(CLUSTERING_DOMAIN) == text:
        return _Target(metadata=state.metadata, features=frozenset()), "CLUSTER BY", parameters
    domain = {"domain": CLUSTERING_DOMAIN, "configuration": text, "removed": False}
    features = frozenset({"clustering", "domainMetadata"})
    target = _Target(metadata=state.metadata, features=features, domains=(domain,))
    return target, "CLUSTER BY", parameters


def _domain_text(paths: Sequence[tuple[str, ...]]) -> str:
    """Return the configuration of the domain as delta-spark writes it."""
    content = {"clusteringColumns": [list(path) for path in paths], "domainName": CLUSTERING_DOMAIN}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _clustering_leaves(state: DeltaState, columns: Sequence[str]) -> list[Leaf]:
    if columns and state.metadata.partition_columns:
        reason = "it is partitioned, and a table is either partitioned or clustered"
        raise _refusal(state.store.url, "clustering", reason, "CREATE TABLE ... CLUSTER BY")
    known = {leaf.path: leaf for leaf in _leaves_with_statistics(state)}
    terms = [term for name in columns for term in parse_terms(name)]
    found = [_leaf(known, term.path, state.schema) for term in terms]
    twice = [path for path, count in Counter(leaf.path for leaf in found).items() if count > 1]
    if twice or len(found) > _MAX_CLUSTERING_COLUMNS:
        message = f"a table has at most {_MAX_CLUSTERING_COLUMNS} clustering columns, each once"
        raise errors.ValidationError(message, field="cluster_by", value=list(columns))
    return found


def _leaves_with_statistics(state: DeltaState) -> tuple[Leaf, ...]:
    rules = statistics_rules(
        state.schema, state.metadata.configuration, mode=state.mapping_mode, partition_columns=()
    )
    return tuple(leaf for leaf in rules.leaves if has_bounds(leaf.type))


def _leaf(known: Mapping[tuple[str, ...], Leaf], path: tuple[str, ...], schema: StructType) -> Leaf:
    wanted = tuple(part.casefold() for part in path)
    for candidate, leaf in known.items():
        if tuple(part.casefold() for part in candidate) == wanted:
            return leaf
    name = ".".join(path)
    if schema.find(path[0]) is None:
        raise errors.UnknownColumnError(name, schema.names)
    raise errors.ValidationError(
        f"a table cannot be clustered by {name!r}: it has no minimum and maximum statistics",
        field="cluster_by",
        value=name,
        hint="choose a column of a simple type, or add it to delta.dataSkippingStatsColumns",
    )


# Protocol


def _protocol(state: DeltaState, target: _Target) -> Protocol:
    supported = supported_features(state.protocol)
    missing = target.features - set(supported)
    if not missing:
        return state.protocol
    for name in sorted(missing):
        if name.startswith(_NOT_BY_NAME):
            raise _refusal(
                state.store.url, name, "lakehand does not write such tables", "ALTER TABLE"
            )
        require_writable(name, operation="set_properties")
    return lift_protocol(state.protocol, {*supported, *missing})


def _with_row_tracking(snapshot: Snapshot, target: _Target) -> _Target:
    """Name the columns of row ids; refuse row ids for files that have none."""
    state: DeltaState = snapshot.native
    if "rowTracking" not in target.features:
        return target
    ids = pc.struct_field(snapshot.files["native"], "base_row_id")
    if ids.null_count:
        reason = f"{ids.null_count} of its files have no row ids and would have to be added again"
        raise _refusal(state.store.url, "rowTracking", reason, "ALTER TABLE SET TBLPROPERTIES")
    configuration = {**row_tracking_columns(), **target.metadata.configuration}
    return replace(target, metadata=replace(target.metadata, configuration=configuration))


def _refusal(table: str, feature: str, reason: str, statement: str) -> errors.RefusedError:
    return errors.RefusedError(
        f"{feature} of {table} cannot be changed: {reason}",
        table=table,
        operation="set_properties",
        feature=feature,
        hint=f"nothing was written; delta-spark can do it by {statement}",
    )
