"""The metadata of a table that takes on new columns and wider types: pure, and always the same.

Two writers that add the same column to the same version give it the same id and the same name in
files, so that the files of the one that comes second fit what the first one made of the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import RefusedError
from lakehand.formats.delta.commits.create import check_names, features_of_columns
from lakehand.formats.delta.commits.table_properties import assign_column_ids, highest_column_id
from lakehand.formats.delta.log.snapshot import DeltaState, table_head
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.arrow_types import arrow_type, from_arrow
from lakehand.formats.delta.protocol.features import FEATURES, supported_features
from lakehand.formats.delta.protocol.schema import (
    TYPE_CHANGES_KEY,
    ArrayType,
    MappingMode,
    MapType,
    StructType,
    mapping_mode,
    parse_schema,
)
from lakehand.model.table_head import Evolution, TableHead

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

_WIDENING = "typeWidening"
#: What protocols without lists know from writer version 2 on, and need from 1 on: a column that is
#: never null is an invariant.
_OLDEST = ("appendOnly", "invariants")
_WIDENING_FEATURES = {_WIDENING, "typeWidening-preview"}
_WIDENING_PROPERTY = "delta.enableTypeWidening"
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_READER_LISTS, _WRITER_LISTS = 3, 7

Changes = list[dict[str, Any]]


def evolve(head: TableHead, schema: pa.Schema) -> Evolution:
    """Return the table with all columns of `schema`, and what a commit must say to make it so.

    Nothing if it has them. RefusedError where the table's protocol would have to allow more for it
    than wider types.
    """
    state: DeltaState = head.native
    metadata = evolved_metadata(state.metadata, schema)
    if metadata == state.metadata:
        return Evolution(head=head)
    protocol = _protocol(state, metadata)
    evolved = replace(
        state,
        metadata=metadata,
        protocol=protocol,
        schema=parse_schema(metadata.schema_string),
    )
    lifted = ({"protocol": protocol.to_json()},) if protocol != state.protocol else ()
    native: tuple[Mapping[str, Any], ...] = (*lifted, {"metaData": metadata.to_json()})
    return Evolution(head=table_head(evolved), native=native)


def evolved_metadata(metadata: Metadata, schema: pa.Schema) -> Metadata:
    """Return what a table with all columns of `schema` says of itself; the same if it has them."""
    have = parse_schema(metadata.schema_string)
    merged = _merge_structs(have, from_arrow(schema), case_matters=False)
    if merged == have:
        return metadata
    configuration = dict(metadata.configuration)
    mode = mapping_mode(configuration)
    check_names(merged, mode)
    if mode is not MappingMode.NONE:
        highest = highest_column_id(merged, configuration.get(_MAX_COLUMN_ID))
        merged, highest = assign_column_ids(merged, after=highest, table_id=metadata.id)
        configuration[_MAX_COLUMN_ID] = str(highest)
    if _widened(have, merged):
        configuration[_WIDENING_PROPERTY] = "true"
    return replace(metadata, schema_string=merged.to_json(), configuration=configuration)


def _merge_structs(have: StructType, want: StructType, *, case_matters: bool = True) -> StructType:
    fields, known = [], set()
    for column in have.fields:
        wanted = _find(want, column.name, case_matters=case_matters)
        if wanted is None:
            fields.append(column)
        else:
            known.add(wanted.name)
            fields.append(_merge_fields(column, wanted))
    new = (column for column in want.fields if column.name not in known)
    return StructType((*fields, *(replace(column, nullable=True) for column in new)))


def _find(struct: StructType, name: str, *, case_matters: bool) -> StructField | None:
    found = struct.find(name)
    return found if found is None or not case_matters or found.name == name else None


def _merge_fields(have: StructField, want: StructField) -> StructField:
    changes: Changes = []
    merged = _merge_types(have.type, want.type, (), changes)
    if not changes:
        return replace(have, type=merged)
    earlier = list(have.metadata.get(TYPE_CHANGES_KEY) or ())
    return replace(
        have, type=merged, metadata={**have.metadata, TYPE_CHANGES_KEY: [*earlier, *changes]}
    )


def _merge_types(
    have: DeltaType, want: DeltaType, path: tuple[str, ...], changes: Changes
) -> DeltaType:
    """Return the type that is wanted, and note what became wider on the way, by its `path`."""
    match have, want:
        case StructType(), StructType():
            return _merge_structs(have, want)
        case ArrayType(element), ArrayType(wanted):
            return replace(have, element=_merge_types(element, wanted, (*path, "element"), changes))
        case MapType(key, value), MapType(wanted_key, wanted_value):
            return replace(
                have,
                key=_merge_types(key, wanted_key, (*path, "key"), changes),
                value=_merge_types(value, wanted_value, (*path, "value"), changes),
            )
    if isinstance(have, StructType | ArrayType | MapType) or _stands_for(have, want):
        return have
    inside = {"fieldPath": ".".join(path)} if path else {}
    changes.append({"toType": want.to_plain(), "fromType": have.to_plain(), **inside})
    return want


def _stands_for(have: DeltaType, want: DeltaType) -> bool:
    """Say whether two types hold the same values: Arrow does not know all names that Delta has."""
    return bool(arrow_type(have) == arrow_type(want))


def _widened(before: StructType, after: StructType) -> bool:
    return _type_changes(before) != _type_changes(after)


def _type_changes(type_: DeltaType) -> int:
    match type_:
        case StructType(fields):
            own = sum(len(column.metadata.get(TYPE_CHANGES_KEY) or ()) for column in fields)
            return own + sum(_type_changes(column.type) for column in fields)
        case ArrayType(element):
            return _type_changes(element)
        case MapType(key, value):
            return _type_changes(key) + _type_changes(value)
    return 0


def _protocol(state: DeltaState, metadata: Metadata) -> Protocol:
    supported = supported_features(state.protocol)
    missing = features_of_columns(metadata) - set(supported)
    if missing:
        name = min(missing)
        raise RefusedError(
            f"{state.store.url} cannot take on a column of this type: it would need the feature"
            f" {name}, which shuts out readers that do not know it",
            table=state.store.url,
            operation="append",
            feature=name,
            hint="nothing was written; give moments a time zone, or add the feature to the table",
        )
    if not _widened(state.schema, parse_schema(metadata.schema_string)):
        return state.protocol
    if _WIDENING_FEATURES & set(supported):
        return state.protocol
    return lift_protocol(state.protocol, {*supported, _WIDENING})


def lift_protocol(protocol: Protocol, features: Collection[str]) -> Protocol:
    """Return the protocol that lists features by name, those among them that were implied."""
    is_listed = protocol.min_writer_version >= _WRITER_LISTS
    listed = {*features} if is_listed else {*features, *_OLDEST}
    for_readers = sorted(name for name in listed if FEATURES[name].is_reader_feature)
    has_list = bool(for_readers) or protocol.min_reader_version >= _READER_LISTS
    return Protocol(
        min_reader_version=_READER_LISTS if has_list else 1,
        min_writer_version=_WRITER_LISTS,
        reader_features=tuple(for_readers) if has_list else None,
        writer_features=tuple(sorted(listed)),
        unknown=protocol.unknown,
    )
