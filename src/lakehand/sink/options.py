"""What a sink was asked for, checked as a whole before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from lakehand.errors import RefusedError, ValidationError
from lakehand.formats.worker import WriteSpec
from lakehand.model.work import require_writer_name

if TYPE_CHECKING:
    from lakehand.settings import Settings

__all__ = ["SinkOptions", "write_spec"]

#: So many times what is gathered before it is written may wait.
_PATIENCE = 4
_RETENTION_FLOOR = timedelta(hours=168)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """The settings of one sink."""

    #: By this name a table knows what it has of this writer; None: it does not.
    writer_id: str | None
    #: Name under which another process commits what this one writes; None: it commits itself.
    pipeline: str | None
    #: Whether epochs are committed once however often they are written; else rows at least once.
    exactly_once: bool
    #: Whether an epoch takes the place of what is there.
    overwrites: bool
    #: Columns by which changes are brought in; none: rows are appended, or overwrite.
    key: tuple[str, ...]
    #: Condition on partition columns: which part of the table is overwritten; None: all of it.
    where: str | None
    #: Columns to partition a new table by; if any are given, one that exists must have the same.
    partition_by: tuple[str, ...]
    #: Rows, bytes and age that make a flush due.
    max_buffer_records: int
    max_buffer_bytes: int
    max_buffer_age_seconds: float
    #: How long a call waits for storage.
    timeout_seconds: float
    #: Whether a call waits, too, while too many rows do.
    waits_under_pressure: bool
    #: What to do about missing epochs: warn, refuse or allow.
    epoch_gaps: str

    @classmethod
    def of(
        cls, settings: Settings, *, where: str | None = None, pipeline: str | None = None
    ) -> Self:
        """Return what `settings` ask for; ValidationError or RefusedError if it cannot be."""
        _refuse_what_is_not_there(settings)
        _refuse_short_retention(settings)
        _check_evolution(settings, pipeline)
        writer_id, overwrites = _writer_id(settings), settings["write_mode"] == "overwrite"
        delivery = settings["delivery"] or ("exactly-once" if writer_id else "at-least-once")
        if delivery == "exactly-once" and writer_id is None:
            raise ValidationError(
                "exactly-once needs a writer id: without one nobody knows what was written before",
                field="writer_id",
                hint="give each writer a name of its own, the same one after every restart",
            )
        key = _key(settings, pipeline)
        if where is not None and not overwrites:
            message = "where says what is overwritten, and write_mode is append"
            raise ValidationError(message, field="where", value=where)
        if pipeline is not None:
            require_writer_name(pipeline, field="pipeline")
        if pipeline is not None and (delivery != "exactly-once" or overwrites):
            message = "writers of a pipeline append exactly once: give a writer_id, and append"
            raise ValidationError(message, field="pipeline", value=pipeline)
        return cls(
            writer_id=writer_id,
            pipeline=pipeline,
            exactly_once=delivery == "exactly-once",
            overwrites=overwrites,
            key=key,
            where=where,
            partition_by=settings["partition_by"],
            max_buffer_records=settings["max_buffer_records"],
            max_buffer_bytes=settings["target_file_bytes"],
            max_buffer_age_seconds=settings["max_buffer_age"].total_seconds(),
            timeout_seconds=settings["write_timeout"].total_seconds(),
            waits_under_pressure=settings["on_backpressure"] == "wait",
            epoch_gaps=settings["epoch_gaps"],
        )

    @property
    def max_waiting_records(self) -> int:
        return _PATIENCE * self.max_buffer_records

    @property
    def max_waiting_bytes(self) -> int:
        return _PATIENCE * self.max_buffer_bytes


def write_spec(settings: Settings) -> WriteSpec:
    """Return how files are written."""
    return WriteSpec(
        target_file_bytes=settings["target_file_bytes"],
        codec=settings["codec"],
        row_group_rows=settings["row_group_rows"],
        group_memory_bytes=settings["write_memory_bytes"],
        threads=settings["write_threads"],
        bloom_columns=settings["bloom_columns"],
        bloom_fpp=settings["bloom_fpp"],
    )


def _writer_id(settings: Settings) -> str | None:
    name: str | None = settings["writer_id"]
    return None if name is None else require_writer_name(name)


def _key(settings: Settings, pipeline: str | None) -> tuple[str, ...]:
    key: tuple[str, ...] = settings["merge_key"]
    if settings["write_mode"] not in {"upsert", "merge"}:
        if key:
            message = f"merge_key is for upserts, and write_mode is {settings['write_mode']}"
            raise ValidationError(message, field="merge_key", value=key)
        return ()
    if not key:
        message = "an upsert needs the columns that rows are found by"
        raise ValidationError(message, field="merge_key", hint="set merge_key")
    if pipeline is not None:
        message = "writers of a pipeline append: an upsert commits by itself"
        raise ValidationError(message, field="pipeline", value=pipeline)
    if settings["schema_evolution"]:
        instead = "add the columns with a sink that appends first"
        raise _not_there("schema_evolution", "true in an upsert", instead)
    return key


def _refuse_what_is_not_there(settings: Settings) -> None:
    if settings["catalog_type"] != "none":
        raise _not_there("catalog_type", settings["catalog_type"], "a table is a path or a URL")


def _check_evolution(settings: Settings, pipeline: str | None) -> None:
    if settings["type_widening"] and not settings["schema_evolution"]:
        message = "type_widening lets types change, and schema_evolution, which allows any change,"
        raise ValidationError(f"{message} is off", field="type_widening", value=True)
    if settings["schema_evolution"] and settings["write_mode"] in {"upsert", "merge"}:
        hint = "append a row with the new columns first, or add them with another engine"
        raise _not_there("schema_evolution", "true for upserts", hint)
    if settings["schema_evolution"] and pipeline is not None:
        hint = "add the columns with a sink of its own first; the committer takes them as they are"
        raise _not_there("schema_evolution", "true in a pipeline", hint)


def _refuse_short_retention(settings: Settings) -> None:
    """Say at once what a vacuum would say when it is due, days later."""
    retention = settings["retention"]
    if retention is None or retention >= _RETENTION_FLOOR or settings["allow_short_retention"]:
        return
    raise ValidationError(
        f"a retention of {retention} is shorter than readers may count on",
        field="retention",
        value=str(retention),
        hint=f"keep files for {_RETENTION_FLOOR}, or set allow_short_retention",
    )


def _not_there(setting: str, value: str, instead: str) -> RefusedError:
    return RefusedError(
        f"{setting} cannot be {value}: that is not there yet",
        operation="append",
        feature=f"{setting}={value}",
        hint=instead,
    )
