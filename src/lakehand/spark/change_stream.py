"""The change data feed for Spark: as one batch, and as a stream with offsets and rate limits.

    spark.readStream.format("lakehand").option("readChangeFeed", "true")
        .option("startingVersion", 0).option("max_files_per_trigger", 100).load("s3://lake/events")

An offset is the next file to read: a version, and an index among the files with its changes. Both
are the same after every restart, so that a batch that is repeated reads the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from lakehand.engine.spark import require_same_versions, versions
from lakehand.errors import ChangeFeedError, SchemaMismatchError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import ChangeReader, SupportsAppends, SupportsChangeFeed
from lakehand.formats.scan import plan_changes
from lakehand.model.work import ChangeSpan
from lakehand.spark.source_options import bins_of, fit_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakehand.model.table_head import TableHead
    from lakehand.spark.source_options import ChangeOptions

#: As Delta's own source has it.
_DEFAULT_FILES = 1000
#: Versions that are looked at for one micro-batch, however many wait.
_MAX_VERSIONS = 1000


def plan_of(table: FormatTable, asked: ChangeOptions) -> ChangeReader:
    """Find the versions that a batch reads."""
    return plan_changes(
        table,
        from_version=asked.from_version,
        to_version=asked.to_version,
        from_timestamp=asked.from_timestamp,
        to_timestamp=asked.to_timestamp,
        columns=asked.columns,
    )


@dataclass
class _Piece(InputPartition):
    """Files that one task reads."""

    files: tuple[Any, ...]


class ChangeBatch(DataSourceReader):
    """Reads the changes of some versions once."""

    def __init__(self, plan: ChangeReader, schema: StructType) -> None:
        files = [file for v in range(plan.first, plan.last + 1) for file in plan.files(v)]
        self._pieces = [_Piece(one) for one in bins_of(files)] or [_Piece(())]
        self._plan = plan.for_tasks()
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._versions = versions()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per task."""
        return self._pieces

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the pieces by itself, each to its task.
        return {**self.__dict__, "_pieces": []}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        return _read(self._plan, partition, self._schema, self._versions)


def _read(
    plan: ChangeReader, partition: InputPartition, schema: pa.Schema, built: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    require_same_versions(built)
    assert isinstance(partition, _Piece)  # noqa: S101  from `partitions`
    return fit_batches(plan.read(partition.files), schema)


@dataclass(frozen=True, kw_only=True)
class Offset:
    """The next file to read."""

    table: str
    version: int
    index: int = 0

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        return cls(table=value["table"], version=value["version"], index=value["index"])

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "version": self.version, "index": self.index}


@dataclass
class _StreamPiece(_Piece):
    """Files that one task reads, with what reads them: the reader of a stream is sent but once."""

    plan: ChangeReader


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of new versions, as many files at a time as the limits allow."""

    def __init__(self, table: FormatTable, asked: ChangeOptions, schema: StructType) -> None:
        self._table = table
        self._asked = asked
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._spark_schema = schema
        self._versions = versions()
        #: The last version that a query of all that is available now reads.
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return where a stream without a checkpoint begins."""
        head = self._head()
        if self._asked.from_latest:
            return Offset(table=head.table_id or "", version=head.version + 1).to_json()
        plan = plan_of(self._table, self._asked)
        return Offset(table=head.table_id or "", version=plan.first).to_json()

    def _head(self) -> TableHead:
        return require_support(self._table, SupportsAppends, operation="changes").head()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the limits; `latestOffset` respects both."""
        if self._asked.max_files is None and self._asked.max_bytes is not None:
            return ReadMaxBytes(self._asked.max_bytes)
        return ReadMaxFiles(self._asked.max_files or _DEFAULT_FILES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the newest version: the query ends with it."""
        self._target = self._head().version

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; `start` if there is nothing new."""
        begin = Offset.of(start)
        latest = self._require_same_table(begin)
        last = latest if self._target is None else min(latest, self._target)
        if begin.version > last:
            return start
        if isinstance(limit, ReadAllAvailable):
            return Offset(table=begin.table, version=last + 1).to_json()
        return self._limited(begin, last).to_json()

    def _require_same_table(self, offset: Offset) -> int:
        """Return the newest version; ChangeFeedError if another table is there now."""
        head = self._head()
        if (head.table_id or "") != offset.table or head.version < offset.version - 1:
            raise ChangeFeedError(
                f"{self._table.store.url} was replaced by another table since the stream read"
                f" version {offset.version - 1} of it",
                table=self._table.store.url,
                version=offset.version,
                hint="start the stream with a new checkpoint",
            )
        return head.version

    def _limited(self, begin: Offset, last: int) -> Offset:
        """Return the offset after as many files as the limits allow, and at least one."""
        last = min(last, begin.version + _MAX_VERSIONS - 1)
        plan = self._plan(begin.version, last)
        files_left = self._asked.max_files
        if files_left is None and self._asked.max_bytes is None:
            files_left = _DEFAULT_FILES
        bytes_left, index, is_first = self._asked.max_bytes, begin.index, True
        for version in range(begin.version, last + 1):
            for number, file in enumerate(plan.files(version)[index:], start=index):
                fits_bytes = bytes_left is None or file.bytes <= bytes_left
                if not is_first and (files_left == 0 or not fits_bytes):
                    return Offset(table=begin.table, version=version, index=number)
                files_left = None if files_left is None else max(files_left - 1, 0)
                bytes_left = None if bytes_left is None else bytes_left - file.bytes
                is_first = False
            index = 0
        return Offset(table=begin.table, version=last + 1)

    def _plan(self, first: int, last: int) -> ChangeReader:
        supported = require_support(self._table, SupportsChangeFeed, operation="changes")
        span = ChangeSpan(from_version=first, to_version=last, under_latest=True)
        plan = supported.plan_changes(span, columns=self._asked.columns)
        found = from_arrow_schema(plan.schema, prefer_timestamp_ntz=True)
        if found != self._spark_schema:
            raise SchemaMismatchError(
                f"the columns of {self._table.store.url} changed while a stream read it",
                table=self._table.store.url,
                difference=("schema",),
                hint="start the stream again with the same checkpoint: it takes the new columns",
            )
        return plan

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition per task."""
        begin, stop = Offset.of(start), Offset.of(end)
        if begin == stop:
            return []
        self._require_same_table(stop)
        last = stop.version if stop.index else stop.version - 1
        plan = self._plan(begin.version, last)
        files: list[Any] = []
        for version in range(begin.version, last + 1):
            found = plan.files(version)
            until = stop.index if version == stop.version else len(found)
            files += found[begin.index if version == begin.version else 0 : until]
        return [_StreamPiece(one, plan.for_tasks()) for one in bins_of(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        assert isinstance(partition, _StreamPiece)  # noqa: S101  from `partitions`
        return _read(partition.plan, partition, self._schema, self._versions)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds the offset."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""
