"""The properties that a table may have, and the ids of its columns."""

from __future__ import annotations

import difflib
import re
import uuid
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from lakehand.errors import RefusedError, ValidationError
from lakehand.formats.delta.protocol.actions import parse_interval
from lakehand.formats.delta.protocol.schema import (
    FIELD_ID_KEY,
    PHYSICAL_NAME_KEY,
    ArrayType,
    MapType,
    StructType,
    field_id,
    is_constraint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lakehand.formats.delta.protocol.schema import DeltaType, StructField

_PREFIX = "delta."
FEATURE_PREFIX = "delta.feature."


def _boolean(value: str) -> bool:
    return value.lower() in {"true", "false"}


def _number(value: str) -> bool:
    # A whole number as every reader parses it: ASCII digits, 64 bits.
    return re.fullmatch(r"-?[0-9]{1,18}", value) is not None


def _interval(value: str) -> bool:
    parse_interval(value)
    return True


def _text(value: str) -> bool:
    return bool(value)


#: What values look like, by what accepts them.
_FORMS: Mapping[Callable[[str], bool], str] = {
    _boolean: "it is true or false",
    _number: "it is a whole number",
    _interval: "it is a time such as 'interval 7 days'",
    _text: "it is not empty",
}


def _one_of(*choices: str) -> Callable[[str], bool]:
    return lambda value: value in choices


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """One property that Delta knows."""

    accepts: Callable[[str], bool]
    #: Features that the protocol must list when the property has the value `active_value`.
    features: tuple[str, ...] = ()
    active_value: str = "true"
    #: Why lakehand creates no table with it; None: it does.
    refusal: str | None = None


def _plain(accepts: Callable[[str], bool]) -> Property:
    return Property(accepts=accepts)


def _switch(*features: str) -> Property:
    return Property(accepts=_boolean, features=features)


def _refused(reason: str) -> Property:
    return Property(accepts=_text, refusal=reason)


_FOREIGN = "lakehand does not keep the metadata of other formats up to date"
_COORDINATED = "lakehand commits to the log in storage, not through a catalog"

PROPERTIES: Mapping[str, Property] = {
    "delta.appendOnly": _switch("appendOnly"),
    "delta.autoOptimize.autoCompact": _plain(_text),
    "delta.autoOptimize.optimizeWrite": _plain(_boolean),
    "delta.checkpoint.writeStatsAsJson": _plain(_boolean),
    "delta.checkpoint.writeStatsAsStruct": _plain(_boolean),
    "delta.checkpointInterval": _plain(_number),
    "delta.checkpointPolicy": Property(
        accepts=_one_of("classic", "v2"), features=("v2Checkpoint",), active_value="v2"
    ),
    "delta.columnMapping.mode": _plain(_one_of("none", "name", "id")),
    "delta.compatibility.symlinkFormatManifest.enabled": _refused(_FOREIGN),
    "delta.dataSkippingNumIndexedCols": _plain(_number),
    "delta.dataSkippingStatsColumns": _plain(_text),
    "delta.dataSkippingStringPrefixLength": _plain(_number),
    "delta.deletedFileRetentionDuration": _plain(_interval),
    "delta.enableChangeDataFeed": _switch("changeDataFeed"),
    "delta.enableDeletionVectors": _switch("deletionVectors"),
    "delta.enableExpiredLogCleanup": _plain(_boolean),
    "delta.enableIcebergCompatV1": _refused(_FOREIGN),
    "delta.enableIcebergCompatV2": _refused(_FOREIGN),
    "delta.enableIcebergCompatV3": _refused(_FOREIGN),
    "delta.enableInCommitTimestamps": _switch("inCommitTimestamp"),
    "delta.enableRowTracking": _switch("rowTracking", "domainMetadata"),
    "delta.enableTypeWidening": _switch("typeWidening"),
    "delta.enableVariantShredding": _refused("lakehand does not write shredded variants"),
    "delta.coordinatedCommits.commitCoordinator-preview": _refused(_COORDINATED),
    "delta.isolationLevel": _plain(_one_of("Serializable")),
    "delta.logRetentionDuration": _plain(_interval),
    "delta.parquet.compression.codec": _plain(_text),
    "delta.parquet.format.version": _plain(_text),
    "delta.randomPrefixLength": _plain(_number),
    "delta.randomizeFilePrefixes": _plain(_boolean),
    "delta.setTransactionRetentionDuration": _plain(_interval),
    "delta.targetFileSize": _plain(_text),
    "delta.tuneFileSizesForRewrites": _plain(_boolean),
    "delta.universalFormat.enabledFormats": _refused(_FOREIGN),
    "delta.writePartitionColumnsToParquet": _plain(_boolean),
}
_BY_LOWER_CASE = {name.lower(): name for name in PROPERTIES}
#: Features that a feature does not come without; readers of the protocol check them.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "clustering": ("domainMetadata",),
    "rowTracking": ("domainMetadata",),
    "variantShredding": ("variantType",),
}


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties to store; refuse those that lakehand cannot keep the promise of.

    Properties that do not start with `delta.` are the user's and are stored unchanged.
    """
    for name, value in properties.items():
        check_property(name, value, operation="create")
    return {
        name: str(value)
        for name, value in properties.items()
        if not name.startswith(FEATURE_PREFIX)
    }


def check_property(name: str, value: str, *, operation: str) -> None:
    """Raise RefusedError for a `delta.` property that lakehand cannot set to `value`."""
    if not name.startswith(_PREFIX) or name.startswith(FEATURE_PREFIX) or is_constraint(name):
        return
    known = PROPERTIES.get(name)
    if known is None:
        nearest = difflib.get_close_matches(name, PROPERTIES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "only known properties can be set"
        raise _refusal(name, "lakehand does not know this property", hint, operation)
    if known.refusal is not None:
        raise _refusal(name, known.refusal, "leave the property out", operation)
    if not _accepts(known, value):
        message = f"property {name} cannot be set to {value!r}"
        raise ValidationError(message, field=name, value=value, hint=_FORMS.get(known.accepts))


def canonical_name(name: str) -> str:
    """Return the name of a property as Delta spells it: names that it knows have any case."""
    if not name.lower().startswith(_PREFIX):
        return name
    if name.lower().startswith(FEATURE_PREFIX):
        return FEATURE_PREFIX + name[len(FEATURE_PREFIX) :]
    return _BY_LOWER_CASE.get(name.lower(), name)


def _accepts(known: Property, value: str) -> bool:
    try:
        return known.accepts(value)
    except (AttributeError, TypeError, ValueError):
        return False


def _refusal(name: str, reason: str, hint: str, operation: str) -> RefusedError:
    message = f"the property {name} cannot be set: {reason}"
    return RefusedError(message, operation=operation, feature=name, hint=hint)


def features_asked_for(properties: Mapping[str, str]) -> set[str]:
    """Return the features that properties need, or ask for by `delta.feature.<name>`."""
    needed = {
        feature
        for name, known in PROPERTIES.items()
        if properties.get(name, "").lower() == known.active_value
        for feature in known.features
    }
    if any(map(is_constraint, properties)):
        needed.add("checkConstraints")
    named = {
        name.removeprefix(FEATURE_PREFIX)
        for name, value in properties.items()
        if name.startswith(FEATURE_PREFIX) and value in {"supported", "enabled"}
    }
    asked = needed | named
    return asked | required_features(asked)


def required_features(names: Iterable[str]) -> set[str]:
    """Return the features that others depend on."""
    return {other for name in names for other in _REQUIRED.get(name, ())}


def has_column_ids(schema: StructType) -> bool:
    """Say whether any column has an id."""
    return any(_ids(schema))


def assign_column_ids(
    schema: StructType, *, table_id: str, after: int = 0, keeps_names: bool = False
) -> tuple[StructType, int]:
    """Give an id and a physical name to every column, at any depth, that has none.

    Also return the highest id. Ids continue `after` the highest that the table ever assigned, and
    names follow from table and id: so no two columns ever share one, and writers that add the same
    columns to the same table use the same names. `keeps_names`: files already hold the columns
    under their own names, which become the physical ones.
    """
    namer = _Namer(table_id, after, keeps_names=keeps_names)
    assigned = StructType(tuple(namer.named(column) for column in schema.fields))
    return assigned, namer.highest


def highest_column_id(schema: StructType, declared: str | None) -> int:
    """Return the highest column id of a table, by its property or by its columns."""
    return max([int(declared or 0), *_ids(schema)])


def _ids(type_: DeltaType) -> Iterator[int]:
    match type_:
        case StructType(fields):
            for column in fields:
                yield field_id(column) or 0
                yield from _ids(column.type)
        case ArrayType(element):
            yield from _ids(element)
        case MapType(key, value):
            yield from _ids(key)
            yield from _ids(value)


class _Namer:
    def __init__(self, table_id: str, after: int, *, keeps_names: bool) -> None:
        self._table_id = table_id
        self._keeps_names = keeps_names
        self._ids = count(after + 1)
        self.highest = after

    def named(self, column: StructField) -> StructField:
        metadata = dict(column.metadata)
        if FIELD_ID_KEY not in metadata:
            self.highest = metadata[FIELD_ID_KEY] = next(self._ids)
            name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._table_id}/{self.highest}")
            metadata[PHYSICAL_NAME_KEY] = column.name if self._keeps_names else f"col-{name}"
        return replace(column, type=self._named_type(column.type), metadata=metadata)

    def _named_type(self, type_: DeltaType) -> DeltaType:
        match type_:
            case StructType(fields):
                return StructType(tuple(self.named(column) for column in fields))
            case ArrayType(element):
                return replace(type_, element=self._named_type(element))
            case MapType(key, value):
                return replace(type_, key=self._named_type(key), value=self._named_type(value))
        return type_
