"""The properties that a new table may have, each with what it takes and the feature it needs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.errors import RefusedError, ValidationError
from lakehand.formats.delta.protocol.intervals import parse_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PROPERTIES", "Property", "check_properties", "features_asked_for"]

_PREFIX = "delta."
_FEATURE_PREFIX = "delta.feature."


def _boolean(value: str) -> bool:
    return value.lower() in {"true", "false"}


def _number(value: str) -> bool:
    return value.lstrip("-").isdigit()


def _interval(value: str) -> bool:
    parse_interval(value)
    return True


def _text(value: str) -> bool:
    return bool(value)


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
#: Features that a feature does not come without; readers of the protocol check them.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "clustering": ("domainMetadata",),
    "rowTracking": ("domainMetadata",),
    "variantShredding": ("variantType",),
}


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties to store; refuse those that lakehand cannot keep the promise of.

    Properties that do not start with `delta.` are the user's own and are stored as they are.
    """
    for name, value in properties.items():
        if name.startswith(_PREFIX) and not name.startswith(_FEATURE_PREFIX):
            _check(name, value)
    return {
        name: str(value)
        for name, value in properties.items()
        if not name.startswith(_FEATURE_PREFIX)
    }


def _check(name: str, value: str) -> None:
    known = PROPERTIES.get(name)
    if known is None:
        nearest = difflib.get_close_matches(name, PROPERTIES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "only known properties can be set"
        raise _refusal(name, "lakehand does not know this property", hint)
    if known.refusal is not None:
        raise _refusal(name, known.refusal, "create the table without it")
    if not _accepts(known, value):
        message = f"property {name} cannot be set to {value!r}"
        raise ValidationError(message, field=name, value=value)


def _accepts(known: Property, value: str) -> bool:
    try:
        return known.accepts(value)
    except (AttributeError, TypeError, ValueError):
        return False


def _refusal(name: str, reason: str, hint: str) -> RefusedError:
    message = f"no table with the property {name} is created: {reason}"
    return RefusedError(message, operation="create", feature=name, hint=hint)


def features_asked_for(properties: Mapping[str, str]) -> set[str]:
    """Return the features that properties need, or ask for by `delta.feature.<name>`."""
    needed = {
        feature
        for name, known in PROPERTIES.items()
        if properties.get(name, "").lower() == known.active_value
        for feature in known.features
    }
    named = {
        name.removeprefix(_FEATURE_PREFIX)
        for name, value in properties.items()
        if name.startswith(_FEATURE_PREFIX) and value in {"supported", "enabled"}
    }
    asked = needed | named
    return asked | {other for name in asked for other in _REQUIRED.get(name, ())}
