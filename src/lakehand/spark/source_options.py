"""What `option(...)` means to Spark's reader and writers, and how a read is divided among tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

import pyarrow as pa

from lakehand.errors import UnknownSettingError, ValidationError
from lakehand.model.quantities import parse_bool, parse_bytes, parse_count, parse_names
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

#: What a source is asked for.
Use = Literal["read", "changes", "write", "stream"]

#: Options that are no settings, by all of their spellings, for each use.
_NAMES: dict[Use, dict[str, str]] = {
    "read": {
        "path": "path",
        "columns": "columns",
        "where": "where",
        "version": "version",
        "versionasof": "version",
        "timestamp": "timestamp",
        "timestampasof": "timestamp",
    },
    "changes": {
        "path": "path",
        "columns": "columns",
        "readchangefeed": "changes",
        "startingversion": "from_version",
        "from_version": "from_version",
        "startingtimestamp": "from_timestamp",
        "from_timestamp": "from_timestamp",
        "endingversion": "to_version",
        "to_version": "to_version",
        "endingtimestamp": "to_timestamp",
        "to_timestamp": "to_timestamp",
        "maxfilespertrigger": "max_files_per_trigger",
        "max_files_per_trigger": "max_files_per_trigger",
        "maxbytespertrigger": "max_bytes_per_trigger",
        "max_bytes_per_trigger": "max_bytes_per_trigger",
    },
    "write": {
        "path": "path",
        "where": "where",
        "replacewhere": "where",
        "epoch": "epoch",
        "txnversion": "epoch",
    },
    "stream": {
        "path": "path",
        "where": "where",
        "replacewhere": "where",
        # Spark's own, which it hands on.
        "checkpointlocation": "checkpointlocation",
        "queryname": "queryname",
    },
}
_SECRETS = "storage."


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """The options of one read or write, checked."""

    path: str
    columns: tuple[str, ...] | None
    where: str | None
    version: int | None
    timestamp: str | None
    #: Number of a batch under its writer id, which makes it exactly once.
    epoch: int | None
    settings: Settings

    @classmethod
    def of(cls, options: Mapping[str, str], *, use: Use) -> Self:
        """Read options; ValidationError, which names those there are, if one is not known."""
        found, settings = _sorted_out(options, use)
        return cls(
            path=found["path"],
            columns=_columns(found),
            where=found.get("where"),
            version=_number(found, "version"),
            timestamp=found.get("timestamp"),
            epoch=_number(found, "epoch"),
            settings=Settings(settings),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeOptions:
    """The options of a read of the change data feed, checked."""

    path: str
    columns: tuple[str, ...] | None
    from_version: int | None
    from_timestamp: str | None
    to_version: int | None
    to_timestamp: str | None
    #: Begin with the version after the latest one.
    from_latest: bool
    #: Files and bytes of one micro-batch; None: no such limit.
    max_files: int | None
    max_bytes: int | None
    settings: Settings

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read options; ValidationError for those that are not known or not numbers."""
        found, settings = _sorted_out(options, "changes")
        from_latest = found.get("from_version", "").lower() == "latest"
        if from_latest:
            del found["from_version"]
        return cls(
            path=found["path"],
            columns=_columns(found),
            from_version=_number(found, "from_version"),
            from_timestamp=found.get("from_timestamp"),
            to_version=_number(found, "to_version"),
            to_timestamp=found.get("to_timestamp"),
            from_latest=from_latest,
            max_files=_limit(found, "max_files_per_trigger", parse_count),
            max_bytes=_limit(found, "max_bytes_per_trigger", parse_bytes),
            settings=Settings(settings),
        )


def wants_changes(options: Mapping[str, str]) -> bool:
    """Say whether the change data feed is asked for, and not the rows of a version."""
    asked = [value for name, value in options.items() if name.lower() == "readchangefeed"]
    try:
        return bool(asked) and parse_bool(asked[0])
    except ValueError as error:
        raise ValidationError(f"readChangeFeed: {error}", field="readChangeFeed") from error


def _limit(found: Mapping[str, str], name: str, parse: Callable[[str], int]) -> int | None:
    text = found.get(name)
    try:
        number = None if text is None else parse(text)
    except ValueError as error:
        raise ValidationError(f"{name}: {error}", field=name, value=text) from error
    if number is not None and number < 1:
        raise ValidationError(f"{name} must be at least 1", field=name, value=text)
    return number


def _sorted_out(options: Mapping[str, str], use: Use) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the options that are no settings, and the settings."""
    names, found, settings = _NAMES[use], dict[str, str](), dict[str, Any]()
    for name, value in options.items():
        place = names.get(name.lower())
        if place is not None:
            found[place] = value
        else:
            settings[_setting(name, use)] = value
    if not found.get("path"):
        message = "the path of the table is missing"
        raise ValidationError(message, field="path", hint="give load, save or start its path")
    return found, settings


def _columns(found: Mapping[str, str]) -> tuple[str, ...] | None:
    columns = found.get("columns")
    return None if columns is None else _names(columns)


def _setting(name: str, use: Use) -> str:
    """Return the name of an option that must be a setting."""
    if name.lower().startswith(_SECRETS):
        raise ValidationError(
            f"option {name!r} is not taken: Spark shows options in its plans and pages",
            field=name,
            hint="register LakehandSource.with_storage_options({...}), or set the environment",
        )
    try:
        Settings({name: None})
    except UnknownSettingError as error:
        known = ", ".join(sorted(_NAMES[use]))
        nearest = f" ({error.hint})" if error.hint else ""
        raise UnknownSettingError(
            f"there is no option {name!r} to {use} a table with{nearest}",
            field=name,
            hint=f"options are {known}, and all settings by their names",
        ) from error
    if name.lower() in {"write_mode", "write.mode", "writemode"}:
        message = f"option {name!r} is not taken: mode(...) or outputMode(...) says it"
        raise ValidationError(message, field=name)
    return name


def _names(text: str) -> tuple[str, ...]:
    """Read names with commas between them, or a list in JSON where a name has a comma itself."""
    if text.lstrip().startswith("["):
        try:
            return tuple(str(name) for name in json.loads(text))
        except ValueError as error:
            message = f"columns {text!r} are no list: {error}"
            raise ValidationError(message, field="columns", value=text) from error
    names: tuple[str, ...] = parse_names(text)
    return names


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name)
    try:
        return None if text is None else int(text)
    except ValueError as error:
        message = f"{name} must be a whole number, and not {text!r}"
        raise ValidationError(message, field=name, value=text) from error


#: As Spark does it: bytes for one task, and the cost of opening a file in bytes.
_TASK_BYTES = 128 * 2**20
_OPENING_BYTES = 4 * 2**20
#: Rows of one batch to the JVM.
_BATCH_ROWS = 64 * 1024


class Sized(Protocol):
    """A file of known size."""

    @property
    def bytes(self) -> int: ...


_File = TypeVar("_File", bound=Sized)


def bins_of(files: Sequence[_File]) -> list[tuple[_File, ...]]:
    """Share files out among tasks, large ones first."""
    bins: list[list[_File]] = []
    size = _TASK_BYTES + 1
    for file in sorted(files, key=lambda file: file.bytes, reverse=True):
        cost = file.bytes + _OPENING_BYTES
        if size + cost > _TASK_BYTES:
            bins.append([])
            size = 0
        bins[-1].append(file)
        size += cost
    return [tuple(one) for one in bins]


def fit_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches under exactly the types that Spark expects, in pieces of moderate size."""
    for batch in batches:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, fitted.num_rows, _BATCH_ROWS):
            yield fitted.slice(start, _BATCH_ROWS)
