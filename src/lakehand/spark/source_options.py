"""What `option(...)` means to Spark's reader and writers, and how a read is divided among tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from lakehand.errors import UnknownSettingError, ValidationError
from lakehand.model.quantities import parse_names
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.model.work import DataFile

#: What a source is asked for.
Use = Literal["read", "write", "stream"]

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
        columns = found.get("columns")
        return cls(
            path=found["path"],
            columns=None if columns is None else _names(columns),
            where=found.get("where"),
            version=_number(found, "version"),
            timestamp=found.get("timestamp"),
            epoch=_number(found, "epoch"),
            settings=Settings(settings),
        )


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


def bins_of(files: Sequence[DataFile]) -> list[tuple[DataFile, ...]]:
    """Share files out among tasks, large ones first."""
    bins: list[list[DataFile]] = []
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
