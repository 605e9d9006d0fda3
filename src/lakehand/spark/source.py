"""Tables for Spark without jars: `format("lakehand")`, and frames that `Table.to_spark` returns.

    spark.dataSource.register(LakehandSource)
    frame.write.format("lakehand").mode("append").save("s3://lake/events")
    stream.writeStream.format("lakehand").option("checkpointLocation", ...).start("s3://lake/events")
    spark.read.format("lakehand").option("where", "day = 'mon'").load("s3://lake/events")

Rows stay Arrow: executors read and write files through the worker of the table's format, the
driver commits once for each batch or micro-batch. All that is secret travels in pickled functions.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakehand.catalogs import open_named_store
from lakehand.engine.spark import require_same_versions, versions
from lakehand.errors import NotInstalledError, SchemaMismatchError, ValidationError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import ChangeReader, SupportsChangeFeed
from lakehand.formats.registry import detect_format
from lakehand.formats.scan import Scan, plan_scan
from lakehand.model.quantities import resolve_timestamp
from lakehand.model.work import ChangeSpan, DataFile, Transaction
from lakehand.sink.writer_lease import WriterLease
from lakehand.spark.source_options import (
    ChangeOptions,
    SourceOptions,
    Use,
    bins_of,
    fit_batches,
    wants_changes,
)
from lakehand.spark.write_job import TaskReport, WriteJob, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from lakehand.storage import Store


#: By which tasks of a stream know the id that its checkpoint keeps, over all restarts.
_QUERY_ID = "sql.streaming.queryId"
_PLAIN_TYPES = (
    BinaryType,
    BooleanType,
    DateType,
    NullType,
    NumericType,
    TimestampNTZType,
    TimestampType,
)


class LakehandSource(DataSource):
    """Reads and writes tables. To be registered: `spark.dataSource.register(LakehandSource)`."""

    _storage_options: ClassVar[Mapping[str, str] | None] = None
    _scan: Scan | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lakehand"

    @classmethod
    def with_storage_options(cls, options: Mapping[str, str]) -> type[Self]:
        """Return a source that has credentials and endpoints, which Spark then shows nowhere."""

        # Defined here, so that it is pickled by value and not by name.
        class Source(cls):  # type: ignore[valid-type,misc]
            _storage_options: ClassVar[Mapping[str, str] | None] = dict(options)

        return Source

    def schema(self) -> StructType:
        """Return the columns to be read, and keep the version that has them."""
        if wants_changes(self.options):
            return spark_schema(self._changes().schema)
        return spark_schema(self._planned().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan a read; SchemaMismatchError if other columns are asked for than the table has."""
        if wants_changes(self.options):
            feed, asked = _change_stream(), ChangeOptions.of(self.options)
            plan = feed.plan_of(self._table(asked), asked)
            reader: DataSourceReader = feed.ChangeBatch(plan, schema)
            return reader
        plan = self._planned()
        found = spark_schema(plan.schema)
        if schema != found:
            raise SchemaMismatchError(
                f"{self.options.get('path')} has the columns {found.simpleString()}, and not"
                f" {schema.simpleString()}",
                table=self.options.get("path"),
                difference=("schema",),
                hint="leave schema(...) out, and choose columns with option('columns', 'a, b')",
            )
        return _Reader(plan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Prepare a stream of the change data feed."""
        if not wants_changes(self.options):
            raise ValidationError(
                "a stream reads the change data feed of a table",
                field="readChangeFeed",
                hint="give option('readChangeFeed', 'true') and option('startingVersion', 0)",
            )
        asked = ChangeOptions.of(self.options)
        stream: DataSourceStreamReader = _change_stream().ChangeStream(
            self._table(asked), asked, schema
        )
        return stream

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Prepare a write of one batch."""
        asked = self._asked("write")
        mark = mark_of(asked)
        job = WriteJob.begin(self._store(asked), asked, arrow_schema(schema), overwrite=overwrite)
        return _Writer(job, mark)

    def streamWriter(  # noqa: N802  Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamArrowWriter:
        """Prepare a write of one micro-batch."""
        asked = self._asked("stream")
        job = WriteJob.begin(self._store(asked), asked, arrow_schema(schema), overwrite=overwrite)
        return _StreamWriter(job)

    def _planned(self) -> Scan:
        if self._scan is None:
            asked = self._asked("read")
            self._scan = plan_scan(
                self._table(asked),
                columns=asked.columns,
                where=asked.where,
                version=asked.version,
                timestamp=resolve_timestamp(asked.version, asked.timestamp),
            )
        return self._scan

    def _changes(self) -> ChangeReader:
        """Return what has the columns of changes: those of the latest version."""
        asked = ChangeOptions.of(self.options)
        table = self._table(asked)
        supported = require_support(table, SupportsChangeFeed, operation="changes")
        bounds = (asked.from_version, asked.from_timestamp, asked.to_version, asked.to_timestamp)
        if any(bound is not None for bound in bounds[2:]):
            changes: ChangeReader = _change_stream().plan_of(table, asked)
            return changes
        if not asked.from_latest and all(bound is None for bound in bounds):
            message = "the changes need a start: startingVersion or startingTimestamp"
            raise ValidationError(message, field="startingVersion")
        return supported.plan_changes(ChangeSpan(under_latest=True), columns=asked.columns)

    def _table(self, asked: SourceOptions | ChangeOptions) -> FormatTable:
        store = self._store(asked)
        return detect_format(store).open(store, settings=asked.settings)

    def _asked(self, use: Use) -> SourceOptions:
        return SourceOptions.of(self.options, use=use)

    def _store(self, asked: SourceOptions | ChangeOptions) -> Store:
        return open_named_store(asked.path, self._storage_options).with_settings(asked.settings)


# Reading


def frame_of(scan: Scan, spark: Any) -> DataFrame:
    """Return a frame of the rows of `scan`. Its files are read when the frame is."""
    schema = spark_schema(scan.schema)
    read = _ReadInTasks(
        scan=scan.without_files(),
        # Packed one by one, so that a task unpacks its own files only.
        bins=[zlib.compress(pickle.dumps(files), level=1) for files in bins_of(scan.files)],
        schema=arrow_of(schema),
        versions=versions(),
    )
    numbers = spark.range(0, len(read.bins), 1, max(len(read.bins), 1))
    frame: DataFrame = numbers.mapInArrow(read.function(), schema)
    return frame


@dataclass(frozen=True, kw_only=True)
class _ReadInTasks:
    """What the tasks of a read must know."""

    scan: Scan
    bins: list[bytes]
    schema: pa.Schema
    versions: Mapping[str, str]

    def function(self) -> Any:
        """Return the function for `mapInArrow`: numbers of tasks in, their rows out."""

        def read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.read(number)

        return read_files

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        require_same_versions(self.versions)
        files = pickle.loads(zlib.decompress(self.bins[number]))  # noqa: S301  our own driver's
        return fit_batches(self.scan.read(files), self.schema)


@dataclass
class _Piece(InputPartition):
    """Files that one task reads."""

    files: tuple[DataFile, ...]


class _Reader(DataSourceReader):
    def __init__(self, scan: Scan) -> None:
        self._scan = scan.without_files()
        self._pieces: list[InputPartition] = [_Piece(files) for files in bins_of(scan.files)]
        self._schema = arrow_of(spark_schema(scan.schema))
        self._versions = versions()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition a task; Spark must get a list."""
        return self._pieces or [_Piece(())]

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the pieces by itself, each to its task.
        return {**self.__dict__, "_pieces": []}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        require_same_versions(self._versions)
        assert isinstance(partition, _Piece)  # noqa: S101  from `partitions`
        return fit_batches(self._scan.read(partition.files), self._schema)


# Writing


@dataclass(frozen=True, kw_only=True)
class _Written(TaskReport, WriterCommitMessage):
    """What a task has written, on its way to the driver."""


class _Writer(DataSourceArrowWriter):
    """One batch: one version, or none."""

    def __init__(self, job: WriteJob, mark: Transaction | None) -> None:
        self._job = job
        self._mark = mark
        self._versions = versions()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        require_same_versions(self._versions)
        return _write(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.finish(_reports(messages), self._mark)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._job, messages)


class _StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch: one version with the stream's mark, however often it is written."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job
        self._versions = versions()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        require_same_versions(self._versions)
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        self._writer_id(query)
        return _write(self._job, iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reports = _reports(messages)
        if not reports:
            return
        query = reports[0].query
        mark = Transaction(application=self._writer_id(query), version=batchId)
        if query is not None and query != mark.application:
            # Another stream, or the same one with a new checkpoint, counts its batches from 0.
            WriterLease(
                store=self._job.target.store, writer_id=mark.application, session=query
            ).claim()
        self._job.finish(reports, mark)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        _abort(self._job, messages)

    def _writer_id(self, query: str | None) -> str:
        writer_id = self._job.options.writer_id or query
        if writer_id is None:
            raise ValidationError(
                "the stream has no id, so its batches cannot be recognised after a restart",
                field="writer_id",
                hint="give option('writer_id', ...): a unique name of the stream, the same"
                " after every restart",
            )
        return writer_id


def _change_stream() -> ModuleType:
    try:
        from lakehand.spark import change_stream
    except ImportError as error:
        message = "Spark reads the change data feed through lakehand with PySpark 4.2 or later"
        raise NotInstalledError(message, hint="pip install 'pyspark>=4.2'") from error
    return change_stream


def _write(job: WriteJob, batches: Iterator[pa.RecordBatch], query: str | None = None) -> _Written:
    context = TaskContext.get()
    return _Written(
        descriptor=job.write(batches).to_json(),
        token=job.token,
        is_retry=bool(context and context.attemptNumber()),
        query=query,
    )


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[_Written]:
    return [message for message in messages if isinstance(message, _Written)]


def _abort(job: WriteJob, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete what tasks have written, if it is certain that no commit was tried.

    Spark tries one only after all tasks have ended well, and aborts after a commit that failed,
    too. That one has deleted what it was safe to delete.
    """
    if None in messages:
        job.give_up(_reports(messages))


# Types


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a frame, all of which may be null, as tables of Spark always do.

    SchemaMismatchError for a type that would silently become another one.
    """
    for column in schema.fields:
        _require_plain(column.dataType, column.name)
    found = arrow_of(schema)
    return pa.schema([_optional(column) for column in found])


def _require_plain(type_: DataType, place: str) -> None:
    if isinstance(type_, StructType):
        for member in type_.fields:
            _require_plain(member.dataType, f"{place}.{member.name}")
    elif isinstance(type_, ArrayType):
        _require_plain(type_.elementType, f"{place}.element")
    elif isinstance(type_, MapType):
        _require_plain(type_.keyType, f"{place}.key")
        _require_plain(type_.valueType, f"{place}.value")
    elif type_ != StringType() and not isinstance(type_, _PLAIN_TYPES):
        message = f"column {place!r} is of type {type_.simpleString()}, which is not written yet"
        hint = "cast it to a type that Parquet has"
        raise SchemaMismatchError(message, difference=(place,), hint=hint)


def _optional(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _optional_type(field.type), nullable=True)


def _optional_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_optional(member) for member in type_])
    if pa.types.is_list(type_):
        return pa.list_(_optional(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_optional_type(type_.key_type), _optional(type_.item_field))
    return type_


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns of a read as Spark knows them."""
    try:
        return from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        message = f"Spark has no type for a column of the table: {error}"
        raise SchemaMismatchError(message, hint="choose other columns with `columns`") from error


#: PySpark 4.1 has another parameter, with this meaning by default.
_IN_UTC: Mapping[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the columns that Spark expects of a task."""
    return to_arrow_schema(schema, **_IN_UTC)
