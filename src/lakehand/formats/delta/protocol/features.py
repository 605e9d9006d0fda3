"""Every table feature of the Delta protocol, and what lakehand does with a table that has it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_void,
    parse_schema,
)
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.formats.delta.protocol.actions import Metadata, Protocol
    from lakehand.formats.delta.protocol.schema import DeltaType

#: Table properties that name the columns in which files hold row ids and row commit versions.
ROW_ID_PROPERTY = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION_PROPERTY = "delta.rowTracking.materializedRowCommitVersionColumnName"
#: Levels of a type in Arrow, where a map is two, and in Parquet, where a list is two as well. Arrow
#: gives up beyond 62, and the writer of Parquet beyond 98.
MOST_ARROW_LEVELS, MOST_PARQUET_LEVELS = 60, 96


def always(metadata: Metadata) -> bool:
    """Say that listing the feature is using it."""
    del metadata
    return True


def property_is_true(name: str) -> Callable[[Metadata], bool]:
    return lambda metadata: metadata.configuration.get(name, "").lower() == "true"


def uses_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Say whether every commit carries its own time."""
    is_listed = "inCommitTimestamp" in (protocol.writer_features or ())
    return is_listed and property_is_true("delta.enableInCommitTimestamps")(metadata)


def has_any_property(*names: str) -> Callable[[Metadata], bool]:
    return lambda metadata: any(metadata.configuration.get(name) for name in names)


def has_field_metadata(key: str) -> Callable[[Metadata], bool]:
    def check(metadata: Metadata) -> bool:
        return any(key in column.metadata for column in _columns(_schema(metadata)))

    return check


def has_type(name: str) -> Callable[[Metadata], bool]:
    def check(metadata: Metadata) -> bool:
        return any(
            isinstance(type_, PrimitiveType) and type_.name == name
            for type_ in _types(_schema(metadata))
        )

    return check


def has_unwritable_void(metadata: Metadata) -> bool:
    """Say whether void sits below an array or map, or is all that a struct or the table holds."""
    schema = _schema(metadata)
    return bool(schema.fields) and any(_is_unwritable(type_) for type_ in _types(schema))


def has_partition_columns_only(metadata: Metadata) -> bool:
    """Say whether every column is one that files leave out."""
    partition = {name.lower() for name in metadata.partition_columns}
    return bool(partition) and partition >= {name.lower() for name in _schema(metadata).names}


def has_deep_types(metadata: Metadata) -> bool:
    """Say whether a column is nested deeper than lakehand can read and write."""
    kinds = [column.type for column in _schema(metadata).fields]
    in_arrow = any(_depth(kind, of_array=1) > MOST_ARROW_LEVELS for kind in kinds)
    return in_arrow or any(_depth(kind, of_array=2) > MOST_PARQUET_LEVELS for kind in kinds)


def _depth(type_: DeltaType, *, of_array: int) -> int:
    """Return the levels of a type, of which an array has `of_array`."""
    match type_:
        case StructType(fields):
            return 1 + max((_depth(column.type, of_array=of_array) for column in fields), default=0)
        case ArrayType(element):
            return of_array + _depth(element, of_array=of_array)
        case MapType(key, value):
            return 2 + max(_depth(part, of_array=of_array) for part in (key, value))
    return 0


def _is_unwritable(type_: DeltaType) -> bool:
    if isinstance(type_, ArrayType | MapType):
        return any(map(is_void, _types(type_)))
    return isinstance(type_, StructType) and all(is_void(column.type) for column in type_.fields)


def _schema(metadata: Metadata) -> StructType:
    return parse_schema(metadata.schema_string)


def _columns(type_: DeltaType) -> Iterator[StructField]:
    for inner in _types(type_):
        if isinstance(inner, StructType):
            yield from inner.fields


def _types(type_: DeltaType) -> Iterator[DeltaType]:
    yield type_
    match type_:
        case StructType(fields):
            for column in fields:
                yield from _types(column.type)
        case ArrayType(element):
            yield from _types(element)
        case MapType(key, value):
            yield from _types(key)
            yield from _types(value)


Operation = Literal["read", "inspect", "checkpoint", "rewrite", "append", "vacuum"]
_READER_VERSIONS, _WRITER_VERSIONS = range(1, 4), range(1, 8)
_READER_LIST_VERSION, _WRITER_LIST_VERSION = 3, 7
_COORDINATOR_PROPERTIES = (
    "delta.coordinatedCommits.commitCoordinator-preview",
    "delta.coordinatedCommits.commitCoordinator",
)
_HINT = "nothing was written; use an engine that supports the feature, or remove it"
_logger = get_logger(__name__)


class Verdict(StrEnum):
    """What an operation does about a feature."""

    #: Done, whatever the feature asks for.
    SUPPORTED = "supported"
    #: Done unless the table makes use of the feature.
    UNLESS_ACTIVE = "unless active"
    #: Never done on a table that lists the feature.
    REFUSED = "refused"


YES, IDLE, NO = Verdict.SUPPORTED, Verdict.UNLESS_ACTIVE, Verdict.REFUSED


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """One feature: who must know it, and what lakehand does with it."""

    name: str
    #: Whether readers must know it too.
    is_reader_feature: bool = False
    read: Verdict = YES
    rewrite: Verdict = YES
    append: Verdict = YES
    #: Log-only work: inspect the table, write checkpoints, delete unreferenced files.
    inspect: Verdict = YES
    checkpoint: Verdict = YES
    vacuum: Verdict = YES
    #: Why, in words for the user.
    reason: str
    #: What to do about a refusal.
    hint: str = _HINT
    #: Whether the table makes use of it.
    is_active: Callable[[Metadata], bool] = always

    def verdict(self, operation: Operation) -> Verdict:
        verdict: Verdict = getattr(self, operation)
        return verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """A property or type that binds writers although it is no feature."""

    name: str
    is_active: Callable[[Metadata], bool]
    refuses: frozenset[Operation]
    reason: str
    #: Whether a user who accepts the consequence may go on.
    can_be_forced: bool = False


def _closed(name: str, reason: str, *, inspect: Verdict = NO, hint: str = _HINT) -> Feature:
    """Return a reader feature that keeps lakehand out of the table."""
    return Feature(
        name=name, is_reader_feature=True, reason=reason, inspect=inspect, hint=hint,
        read=NO, rewrite=NO, append=NO, checkpoint=NO, vacuum=NO,
    )  # fmt: skip


def _iceberg(name: str, version: str) -> Feature:
    return Feature(
        name=name, rewrite=IDLE, append=IDLE,
        reason="files must follow Iceberg's rules (field ids, partition columns inside), which "
        "lakehand does not write",
        is_active=property_is_true(f"delta.enableIceberg{version}"),
    )  # fmt: skip


_EXPRESSIONS = (
    "new rows are checked against the table's SQL expressions; expressions that might evaluate "
    "differently in Spark are refused"
)
_VARIANT = "existing variant values are read and rewritten; new ones are not encoded"
_SHREDDED = (
    "shredded variants are read; copied row groups stay shredded, and rewritten rows are stored"
    " unshredded; new variant values are not encoded"
)
_CATALOG = "commits go through a catalog, so the log in storage may be incomplete"
_CATALOG_HINT = (
    "nothing was written; only the catalog knows the newest version: maintain the table with an"
    " engine that commits through it, or drop the feature (`ALTER TABLE ... DROP FEATURE`)"
)
_ADAPTIVE = "the state of the table is stored in manifests that this version cannot read"
_MOVED = "the table was redirected to another location"
_TYPES = "this version neither reads nor writes values of this type"

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(
            name="appendOnly",
            reason="rewrites and appends remove no data; deletions are refused while it is enabled",
        ),
        Feature(
            name="invariants",
            reason=f"NOT NULL columns are checked, and {_EXPRESSIONS}",
        ),
        Feature(
            name="checkConstraints",
            reason=f"rewrites change no rows; {_EXPRESSIONS}",
        ),
        Feature(
            name="changeDataFeed",
            reason="rewrites are committed without data change, appends need no change files, and "
            "deletions that rewrite files write them",
        ),
        Feature(
            name="generatedColumns",
            reason="rewrites copy the values; for new rows they are computed or checked; "
            "expressions that might evaluate differently in Spark are refused",
        ),
        Feature(
            name="columnMapping",
            is_reader_feature=True,
            reason="columns are matched by physical name or field id",
        ),
        Feature(
            name="identityColumns",
            append=IDLE,
            reason="rewrites copy the values; new identity values are not generated",
            is_active=has_field_metadata("delta.identity.start"),
        ),
        Feature(
            name="deletionVectors",
            is_reader_feature=True,
            reason="readers skip deleted rows, and rewrites remove them; deletion vectors are "
            "written if the table has them enabled",
        ),
        Feature(
            name="timestampNtz",
            is_reader_feature=True,
            reason="timestamps without a time zone are read and written",
        ),
        Feature(name="domainMetadata", reason="unknown domains are preserved"),
        Feature(
            name="rowTracking", reason="row ids are assigned to new rows, and preserved by rewrites"
        ),
        Feature(
            name="v2Checkpoint",
            is_reader_feature=True,
            reason="classic and V2 checkpoints are read and written",
        ),
        Feature(name="inCommitTimestamp", reason="every commit contains its timestamp"),
        Feature(name="clustering", reason="clustering columns always get statistics"),
        Feature(
            name="allowColumnDefaults",
            reason="missing columns of new rows get their defaults; defaults other than constants "
            "and the current time are refused",
        ),
        *(
            Feature(
                name=name,
                is_reader_feature=True,
                reason="older files are cast to the current types; type changes that Delta does "
                "not allow are refused when reading",
            )
            for name in ("typeWidening", "typeWidening-preview")
        ),
        *(
            Feature(
                name=name,
                is_reader_feature=True,
                append=IDLE,
                reason=_VARIANT,
                is_active=has_type("variant"),
            )
            for name in ("variantType", "variantType-preview")
        ),
        *(
            Feature(
                name=name,
                is_reader_feature=True,
                append=IDLE,
                reason=_SHREDDED,
                is_active=property_is_true("delta.enableVariantShredding"),
            )
            for name in ("variantShredding", "variantShredding-preview")
        ),
        Feature(
            name="vacuumProtocolCheck",
            is_reader_feature=True,
            reason="vacuum always checks the reader and the writer protocol",
        ),
        Feature(
            name="checkpointProtection",
            reason="log cleanup keeps the protected versions; nothing else is affected",
        ),
        _iceberg("icebergCompatV1", "CompatV1"),
        _iceberg("icebergCompatV2", "CompatV2"),
        _iceberg("icebergCompatV3", "CompatV3"),
        _iceberg("icebergWriterCompatV1", "WriterCompatV1"),
        _iceberg("icebergWriterCompatV3", "WriterCompatV3"),
        Feature(
            name="materializePartitionColumns",
            reason="partition columns are also written to the data files",
        ),
        _closed("catalogManaged", _CATALOG, hint=_CATALOG_HINT),
        _closed("catalogOwned-preview", _CATALOG, hint=_CATALOG_HINT),
        Feature(
            name="coordinatedCommits-preview",
            rewrite=IDLE,
            append=IDLE,
            checkpoint=IDLE,
            vacuum=IDLE,
            reason=_CATALOG,
            hint=_CATALOG_HINT,
            is_active=has_any_property(*_COORDINATOR_PROPERTIES),
        ),
        _closed("adaptiveMetadata", _ADAPTIVE),
        _closed("adaptiveMetadata-preview", _ADAPTIVE),
        _closed("redirectReaderWriter-preview", _MOVED),
        Feature(
            name="redirectWriterOnly-preview",
            rewrite=NO,
            append=NO,
            checkpoint=NO,
            vacuum=NO,
            reason=_MOVED,
        ),
        _closed("geospatial", _TYPES, inspect=YES),
        _closed("geospatial-dev", _TYPES, inspect=YES),
        Feature(name="collations", reason="collations are preserved; statistics use binary order"),
        Feature(
            name="collations-preview",
            reason="collations are preserved; statistics use binary order",
        ),
        _closed("timestampNanos", _TYPES, inspect=YES),
        Feature(name="columnMappingUsageTracking", reason="lakehand drops and renames no columns"),
    )
}

BINDINGS: tuple[Binding, ...] = (
    Binding(
        name="UniForm (delta.universalFormat.enabledFormats)",
        is_active=has_any_property("delta.universalFormat.enabledFormats"),
        refuses=frozenset({"rewrite", "vacuum"}),
        reason="the Iceberg or Hudi metadata of the table would become stale and refer to deleted "
        "files",
        can_be_forced=True,
    ),
    Binding(
        name="symlink manifests (delta.compatibility.symlinkFormatManifest.enabled)",
        is_active=property_is_true("delta.compatibility.symlinkFormatManifest.enabled"),
        refuses=frozenset({"rewrite", "vacuum"}),
        reason="the manifests of the table would become stale and refer to deleted files",
        can_be_forced=True,
    ),
    Binding(
        name="coordinated commits (delta.coordinatedCommits.commitCoordinator)",
        is_active=has_any_property(*_COORDINATOR_PROPERTIES),
        refuses=frozenset({"rewrite", "append", "checkpoint", "vacuum"}),
        reason=_CATALOG,
    ),
    Binding(
        name="void columns inside arrays or maps, or as the only fields of a struct",
        is_active=has_unwritable_void,
        refuses=frozenset({"rewrite", "append"}),
        reason="Parquet cannot hold such a column",
    ),
    Binding(
        name="tables with partition columns only",
        is_active=has_partition_columns_only,
        refuses=frozenset({"rewrite", "append"}),
        reason="a data file would have no column, and so no row count",
    ),
    Binding(
        name="types nested too deeply",
        is_active=has_deep_types,
        refuses=frozenset({"rewrite", "append"}),
        reason=f"Arrow holds {MOST_ARROW_LEVELS} levels, of which a map takes two, and Parquet"
        f" {MOST_PARQUET_LEVELS}, of which arrays and maps take two",
    ),
)

_IMPLIED_BY_WRITER: tuple[tuple[int, tuple[str, ...]], ...] = (
    (2, ("appendOnly", "invariants")),
    (3, ("checkConstraints",)),
    (4, ("changeDataFeed", "generatedColumns")),
    (5, ("columnMapping",)),
    (6, ("identityColumns",)),
)


def supported_features(protocol: Protocol) -> tuple[str, ...]:
    """Return the features a table may use: those listed, or those its old versions stand for."""
    if protocol.min_writer_version >= _WRITER_LIST_VERSION:
        listed = (*(protocol.writer_features or ()), *(protocol.reader_features or ()))
        implied: tuple[str, ...] = ()
    else:
        listed = protocol.reader_features or ()
        implied = tuple(
            name
            for version, names in _IMPLIED_BY_WRITER
            if version <= protocol.min_writer_version
            for name in names
        )
    return tuple(dict.fromkeys((*_reader_features(protocol), *listed, *implied)))


def require_read(
    protocol: Protocol,
    metadata: Metadata,
    *,
    table: str,
    operation: Literal["read", "inspect"] = "read",
) -> None:
    """Raise RefusedError, which names the feature, if the table cannot be read correctly."""
    _require_version("reader", protocol.min_reader_version, _READER_VERSIONS, table)
    for name in _reader_features(protocol):
        _require(operation, name, metadata, table)
    if has_any_property(*_COORDINATOR_PROPERTIES)(metadata):
        log_event(
            _logger,
            logging.WARNING,
            "coordinated_commits",
            "%s may be newer than its log says: %s",
            table,
            _CATALOG,
            table=table,
        )


def require_write(
    operation: Operation,
    protocol: Protocol,
    metadata: Metadata,
    *,
    table: str,
    force: bool = False,
) -> None:
    """Raise RefusedError, which names the feature, if `operation` is not safe on the table."""
    require_read(
        protocol, metadata, table=table, operation="read" if operation == "read" else "inspect"
    )
    if operation in {"read", "inspect"}:
        return
    _require_version("writer", protocol.min_writer_version, _WRITER_VERSIONS, table)
    for name in supported_features(protocol):
        _require(operation, name, metadata, table)
    for binding in BINDINGS:
        is_forced = force and binding.can_be_forced
        if operation in binding.refuses and not is_forced and binding.is_active(metadata):
            raise _refusal(operation, binding.name, binding.reason, table)


def _reader_features(protocol: Protocol) -> tuple[str, ...]:
    if protocol.min_reader_version < _READER_LIST_VERSION:
        return ("columnMapping",) if protocol.min_reader_version > 1 else ()
    if protocol.reader_features is not None:
        return protocol.reader_features
    # The list is owed but absent; what readers must know is then among what writers must know.
    return tuple(name for name in protocol.writer_features or () if _concerns_readers(name))


def _concerns_readers(name: str) -> bool:
    return name not in FEATURES or FEATURES[name].is_reader_feature


def _require_version(side: str, version: int, known: range, table: str) -> None:
    if version not in known:
        feature = f"{side} version {version}"
        reason = f"lakehand knows {side} versions {known.start} to {known.stop - 1}"
        raise _refusal("read" if side == "reader" else "write", feature, reason, table)


def _require(operation: Operation, name: str, metadata: Metadata, table: str) -> None:
    feature = FEATURES.get(name)
    if feature is None:
        raise _refusal(operation, name, "lakehand does not know this feature", table)
    verdict = feature.verdict(operation)
    if verdict is NO or (verdict is IDLE and feature.is_active(metadata)):
        raise _refusal(operation, name, feature.reason, table, hint=feature.hint)


def _refusal(
    operation: str, feature: str, reason: str, table: str, *, hint: str = _HINT
) -> RefusedError:
    return RefusedError(
        f"{operation} is refused on {table}, because of its feature {feature}: {reason}",
        table=table,
        operation=operation,
        feature=feature,
        hint=hint,
    )
