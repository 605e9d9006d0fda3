"""Actions: the lines of a Delta commit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.members import checked_action, load_json
from lakehand.formats.delta.protocol.names import commit_key, decode_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
            hint=f"look at {key}; the table cannot be opened at or after this version without it",
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
