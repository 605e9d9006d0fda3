"""Actions: the lines of a Delta commit, their members, and properties of the table.

Whatever of a log becomes a Python value is checked here. Unknown members are kept unchanged, and so
are those of `commitInfo`, which engines fill as they like.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import CorruptLogError, ValidationError
from lakehand.formats.delta.protocol.names import commit_key, decode_path
from lakehand.model.quantities import MAX_DURATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: A check, and what it asks for.
    _Type = tuple[Callable[[Any], bool], str]

# Members of actions

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
    """Return an action of `kind` unchanged; ValueError says which member is wrong."""
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


_LIST_KINDS = ("add", "remove", "cdc", "txn", "domainMetadata")
_SINGLE_KINDS = ("protocol", "metaData", "commitInfo")
_IDENTITY_MARK = "delta.identity.highWaterMark"


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """What a reader and a writer must know to touch the table."""

    min_reader_version: int
    min_writer_version: int
    #: None unless the reader version carries a list.
    reader_features: tuple[str, ...] | None = None
    #: None unless the writer version carries a list.
    writer_features: tuple[str, ...] | None = None
    #: Keys that this version of lakehand does not know.
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the action; ValueError if a member is missing or of a wrong type."""
        rest = dict(checked_action("protocol", value))
        readers, writers = rest.pop("readerFeatures", None), rest.pop("writerFeatures", None)
        return cls(
            min_reader_version=int(rest.pop("minReaderVersion")),
            min_writer_version=int(rest.pop("minWriterVersion")),
            reader_features=None if readers is None else tuple(readers),
            writer_features=None if writers is None else tuple(writers),
            unknown=rest,
        )

    def to_json(self) -> dict[str, Any]:
        features = {"readerFeatures": self.reader_features, "writerFeatures": self.writer_features}
        return {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
            **{name: list(value) for name, value in features.items() if value is not None},
            **self.unknown,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """Schema, partitioning and properties of the table."""

    id: str
    schema_string: str | None
    partition_columns: tuple[str, ...] = ()
    #: Properties of the table, as written.
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    format: Mapping[str, Any] = field(default_factory=lambda: _format(None))
    created_time: int | None = None
    #: Keys that this version of lakehand does not know.
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the action; ValueError if a member is missing or of a wrong type."""
        rest = dict(checked_action("metaData", value))
        return cls(
            id=rest.pop("id"),
            schema_string=rest.pop("schemaString", None),
            partition_columns=tuple(rest.pop("partitionColumns", None) or ()),
            configuration=_set_properties(rest.pop("configuration", None)),
            name=rest.pop("name", None),
            description=rest.pop("description", None),
            format=_format(rest.pop("format", None)),
            created_time=rest.pop("createdTime", None),
            unknown=rest,
        )

    def to_json(self) -> dict[str, Any]:
        optional = {
            "name": self.name,
            "description": self.description,
            "schemaString": self.schema_string,
            "createdTime": self.created_time,
        }
        return {
            "id": self.id,
            **{name: value for name, value in optional.items() if value is not None},
            "format": dict(self.format),
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
            **self.unknown,
        }

    def lasting_schema(self) -> Any:
        """Return the schema as JSON, without what changes as identity columns count."""
        return load_json(self.schema_string or "{}", object_hook=_without_identity_mark)


def _set_properties(value: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the properties that have a value: some engines keep others as null."""
    return {name: text for name, text in (value or {}).items() if text is not None}


def _format(value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the format of data files; engines may leave its options out, or have them null."""
    found = {"provider": "parquet", **(value or {})}
    return {**found, "options": found.get("options") or {}}


def _without_identity_mark(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != _IDENTITY_MARK}


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """Everything one version says. File actions are plain dicts, exactly as in the log."""

    version: int
    commit_info: Mapping[str, Any] | None
    adds: tuple[dict[str, Any], ...] = ()
    removes: tuple[dict[str, Any], ...] = ()
    cdcs: tuple[dict[str, Any], ...] = ()
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[dict[str, Any], ...] = ()
    domains: tuple[dict[str, Any], ...] = ()

    @property
    def in_commit_timestamp(self) -> int | None:
        """Milliseconds since the epoch that the commit itself claims as its time."""
        value = (self.commit_info or {}).get("inCommitTimestamp")
        return None if value is None else int(value)


def parse_commit(
    version: int, data: bytes, *, table: str | None = None, key: str | None = None
) -> Commit:
    """Read the bytes of `V.json`, or of the file `key`.

    Unknown actions are left out; anything unreadable is an error.
    """
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*_LIST_KINDS, *_SINGLE_KINDS)}
    try:
        for kind, action in _actions(data):
            if kind in found:
                found[kind].append(checked_action(kind, action))
        return _commit(version, found)
    except (ValueError, KeyError, TypeError) as error:
        key = key or commit_key(version)
        raise CorruptLogError(
            f"version {version} of the log ({key}) cannot be read: {error}",
            table=table,
            version=version,
            path=key,
            hint=f"check {key}; the table cannot be opened at or after this version without it",
        ) from error


def parse_commit_info(version: int, data: bytes, *, table: str | None = None) -> Mapping[str, Any]:
    """Return what a commit says of itself, without reading the rest where it can be helped."""
    first, _, _ = data.partition(b"\n")
    if first.startswith(b'{"commitInfo":'):
        with suppress(ValueError):
            return checked_action("commitInfo", load_json(first)["commitInfo"] or {})
    return parse_commit(version, data, table=table).commit_info or {}


def _actions(data: bytes) -> Iterator[tuple[str, Any]]:
    if not data.strip():
        raise ValueError("the file is empty")
    for number, line in enumerate(data.decode("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        entry = load_json(line)
        if not isinstance(entry, dict):
            raise TypeError(f"line {number} is not an object")
        for kind, action in entry.items():
            if action is not None:
                yield kind, action


def _commit(version: int, found: dict[str, list[dict[str, Any]]]) -> Commit:
    for kind in ("protocol", "metaData"):
        if len(found[kind]) > 1:
            raise ValueError(f"it holds {len(found[kind])} {kind} actions, at most one is allowed")
    for transaction in found["txn"]:
        transaction_version(transaction)
    protocol, metadata, info = (next(iter(found[kind]), None) for kind in _SINGLE_KINDS)
    return Commit(
        version=version,
        commit_info=info,
        adds=tuple(found["add"]),
        removes=tuple(found["remove"]),
        cdcs=tuple(found["cdc"]),
        protocol=None if protocol is None else Protocol.from_json(protocol),
        metadata=None if metadata is None else Metadata.from_json(metadata),
        transactions=tuple(found["txn"]),
        domains=tuple(found["domainMetadata"]),
    )


def transaction_version(transaction: Mapping[str, Any]) -> int:
    """Return how far an application has come; ValueError if that cannot be told."""
    name, version = transaction.get("appId"), transaction.get("version")
    is_integer = isinstance(version, int) and not isinstance(version, bool)
    if not isinstance(name, str) or version is None or not is_integer:
        raise ValueError(f"the transaction of application {name!r} has the version {version!r}")
    return int(version)


def transaction_versions(
    transactions: Iterable[Mapping[str, Any]], *, table: str, version: int
) -> dict[str, int]:
    """Return how far each application has come; CorruptLogError if one cannot be told."""
    try:
        return {item["appId"]: transaction_version(item) for item in transactions}
    except ValueError as error:
        raise CorruptLogError(
            f"the log of {table} up to version {version} cannot be read: {error}",
            table=table,
            version=version,
            hint="nothing was written; the version of a transaction is an integer of 64 bits",
        ) from error


def file_key(action: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return what makes a file action name one logical file: decoded path and deletion vector."""
    return decode_path(action["path"]), dv_id(action.get("deletionVector"))


def dv_id(descriptor: Mapping[str, Any] | None) -> str | None:
    """Return the identity of a deletion vector. An absent offset and offset 0 differ."""
    if descriptor is None:
        return None
    identity = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    offset = descriptor.get("offset")
    return identity if offset is None else f"{identity}@{offset}"


def row_count(stats: str | None) -> int | None:
    """Return the number of rows that statistics state; None if they state none."""
    try:
        count = load_json(stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None


_UNITS: Mapping[str, timedelta] = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_MICROSECOND = timedelta(microseconds=1)
_TERM = r"([+-]?\d+)\s+([a-z]+?)s?(?=\s|$)"
_INTERVAL = re.compile(rf"(?:interval\s+)?{_TERM}(?:\s+{_TERM})*")


def parse_interval(text: str) -> timedelta:
    """Return the duration that `text` spells; ValueError if it is none or negative.

    >>> parse_interval("interval 1 week 12 hours")
    datetime.timedelta(days=7, seconds=43200)
    """
    plain = text.strip().lower()
    if _INTERVAL.fullmatch(plain) is None:
        raise ValueError(f"{text!r} is not an interval such as 'interval 7 days'")
    total = sum(_microseconds(text, *term) for term in re.findall(_TERM, plain))
    if total < 0:
        raise ValueError(f"{text!r} is a negative interval")
    return timedelta(microseconds=min(total, MAX_DURATION // _MICROSECOND))


def interval_property(properties: Mapping[str, str], name: str, default: str) -> timedelta:
    """Return the duration in the table property `name`, or `default` where it is not set."""
    text = properties.get(name, default)
    try:
        return parse_interval(text)
    except (ValueError, OverflowError) as error:
        raise ValidationError(
            f"the table property {name} cannot be read: {error}",
            field=name,
            value=text,
            hint=f"Set it to an interval of weeks or smaller units, e.g. '{default}'.",
        ) from error


def integer_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return the number in the table property `name`, or `default` where it is not set."""
    text = properties.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise ValidationError(
            f"the table property {name} is {text[:_MOST_SHOWN]!r} and not a number",
            field=name,
            value=text,
            hint=f"Set it to a number, e.g. '{default}'.",
        ) from error


def _microseconds(text: str, count: str, unit: str) -> int:
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise ValueError(f"{text!r} is no interval of fixed length: {unit} is none of {known}")
    return int(count) * (_UNITS[unit] // _MICROSECOND)
