"""Whether a table makes use of a feature that its protocol allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_void,
    parse_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.formats.delta.protocol.actions import Metadata, Protocol
    from lakehand.formats.delta.protocol.schema import DeltaType

__all__ = [
    "always",
    "has_any_property",
    "has_field_metadata",
    "has_partition_columns_only",
    "has_type",
    "has_unwritable_void",
    "property_is_true",
    "uses_in_commit_timestamps",
]


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
