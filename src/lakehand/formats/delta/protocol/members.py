"""Types of the members of actions: whatever of a log becomes a Python value is checked here.

Members that lakehand does not know are kept as they are, and so are those of `commitInfo`, which
engines fill as they like.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: A check, and what it asks for.
    _Type = tuple[Callable[[Any], bool], str]

#: The last millisecond of the year 9999, since the epoch; no later time has a name.
LATEST_MS = 253_402_300_799_999
#: No store holds a larger object, so a larger size is none. Azure's limit is a fifth of it.
MOST_FILE_BYTES = 2**50
_LONGS = range(-(2**63), 2**63)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(text: str | bytes, **options: Any) -> Any:
    """Return what JSON says; ValueError for all that cannot be used, whatever the reason.

    A member that comes twice is such a reason, because readers differ in which one they take;
    unless `options`, which are those of `json.loads`, say how objects are read.
    """
    decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = json.loads(decoded, **options) if options else _DECODER.decode(decoded)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _SURROGATE.search(decoded):
        # Half a character can be escaped in JSON, and can be written to no file.
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        name = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"it names the member {name!r} twice")
    return members


#: Made once: to make one takes as long as to read a short line.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates)


def checked_action(kind: str, value: Any) -> dict[str, Any]:
    """Return an action of `kind` as it is; ValueError that says which member is wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind} is {_shown(value)} and not an object")  # noqa: TRY004  as JSON
    _check_members(kind, value, _MEMBERS.get(kind, {}), _OBLIGATORY.get(kind, ()))
    return value


def _check_members(
    name: str, value: Mapping[str, Any], types: Mapping[str, _Type], obligatory: tuple[str, ...]
) -> None:
    for member in obligatory:
        if value.get(member) is None:
            raise ValueError(f"{name} has no {member}")
    for member, (is_valid, expected) in types.items():
        found = value.get(member)
        if found is not None and not is_valid(found):
            raise ValueError(f"{name}.{member} is {_shown(found)} and not {expected}")


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, (dict, list)) else type(value).__name__
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


_MOST_SHOWN = 80


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer() and int(value) in _LONGS
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONGS


def _is_count(value: Any) -> bool:
    return _is_integer(value) and value >= 0


def _is_size(value: Any) -> bool:
    return _is_count(value) and value <= MOST_FILE_BYTES


def _is_time(value: Any) -> bool:
    return _is_count(value) and value <= LATEST_MS


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        item is None or isinstance(item, str) for item in value.values()
    )


def _is_vector(value: Any) -> bool:
    try:
        _check_members("deletionVector", value, _VECTOR, _VECTOR_OBLIGATORY)
    except (ValueError, AttributeError):
        return False
    return True


_TEXT = (_is_text, "a string")
_BOOLEAN = (_is_boolean, "a boolean")
_INTEGER = (_is_integer, "an integer of 64 bits")
_COUNT = (_is_count, "a count")
_SIZE = (_is_size, f"a number of bytes up to {MOST_FILE_BYTES}")
_TIME = (_is_time, "a time in milliseconds since 1970")
_OBJECT = (_is_object, "an object")
_TEXT_LIST = (_is_text_list, "a list of strings")
_TEXT_MAP = (_is_text_map, "an object of strings")
_VECTOR = {
    "storageType": _TEXT,
    "pathOrInlineDv": _TEXT,
    "offset": _COUNT,
    "sizeInBytes": _COUNT,
    "cardinality": _COUNT,
}
_VECTOR_OBLIGATORY = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")
_FILE = {
    "path": _TEXT,
    "partitionValues": _TEXT_MAP,
    "size": _SIZE,
    "dataChange": _BOOLEAN,
    "stats": _TEXT,
    "tags": _TEXT_MAP,
    "deletionVector": (_is_vector, "a deletion vector with all its members"),
    "baseRowId": _INTEGER,
    "defaultRowCommitVersion": _INTEGER,
}
_MEMBERS: Mapping[str, Mapping[str, _Type]] = {
    "add": {**_FILE, "modificationTime": _INTEGER, "clusteringProvider": _TEXT},
    "remove": {**_FILE, "deletionTimestamp": _INTEGER, "extendedFileMetadata": _BOOLEAN},
    "cdc": {name: _FILE[name] for name in ("path", "partitionValues", "size", "tags")},
    "txn": {"appId": _TEXT, "version": _INTEGER, "lastUpdated": _INTEGER},
    "domainMetadata": {"domain": _TEXT, "configuration": _TEXT, "removed": _BOOLEAN},
    "protocol": {
        "minReaderVersion": _COUNT,
        "minWriterVersion": _COUNT,
        "readerFeatures": _TEXT_LIST,
        "writerFeatures": _TEXT_LIST,
    },
    "metaData": {
        "id": _TEXT,
        "name": _TEXT,
        "description": _TEXT,
        "format": _OBJECT,
        "schemaString": _TEXT,
        "partitionColumns": _TEXT_LIST,
        "configuration": _TEXT_MAP,
        "createdTime": _INTEGER,
    },
    "commitInfo": {"inCommitTimestamp": _TIME},
    "sidecar": {"path": _TEXT},
    "checkpointMetadata": {"version": _COUNT},
}
_OBLIGATORY: Mapping[str, tuple[str, ...]] = {
    "add": ("path", "size"),
    "remove": ("path",),
    "cdc": ("path",),
    "txn": ("appId", "version"),
    "domainMetadata": ("domain",),
    "protocol": ("minReaderVersion", "minWriterVersion"),
    "metaData": ("id",),
    "sidecar": ("path",),
}
