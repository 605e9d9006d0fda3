"""Reads and writes of tables on the session of a runner's host."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceArrowWriter

import lakehand
from lakehand.spark import LakehandSource
from lakehand.table import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from lakehand.engine.spark import SparkRunner

#: A column of each type that Spark and tables have in common.
_VALUES = {
    "bool": "id % 2 = 0",
    "byte": "CAST(id % 100 AS BYTE)",
    "short": "CAST(id AS SHORT)",
    "int": "CAST(id AS INT)",
    "float": "CAST(id / 3 AS FLOAT)",
    "double": "CAST(id AS DOUBLE) / 7",
    "decimal": "CAST(id AS DECIMAL(38, 6)) / 9",
    "text": "concat('Zeile ', id, ' \u2603')",
    "bytes": "CAST(concat('b', id) AS BINARY)",
    "day": "date_add(DATE '1969-12-01', CAST(id AS INT))",
    "at": "timestamp_micros(id * 1000001 - 5)",
    "local": "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999' + make_interval(0, 0, 0, id)",
    "nothing": "CAST(NULL AS VOID)",
    "list": "array(id, NULL, -id)",
    "map": "map('a', id, 'b', NULL)",
    "struct": "named_struct('x', id, 'inner', array(named_struct('y', CAST(id AS STRING))))",
}


def every_type(*, rows: int = 50, tasks: int = 3) -> str:
    """Return a query for rows with values of every type, all null in every seventh row."""
    columns = ", ".join(f"IF(id % 7 = 0, NULL, {value}) AS {k}" for k, value in _VALUES.items())
    return f"SELECT id, CAST(id % 3 AS STRING) AS part, {columns} FROM range(0, {rows}, 1, {tasks})"


def write(
    runner: SparkRunner,
    query: str,
    place: Path | str,
    mode: str = "append",
    options: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> None:
    """Write the rows of `query` into the table."""
    session = _session(runner, storage)
    writer = session.sql(query).write.format("lakehand").mode(mode).options(**(options or {}))
    try:
        writer.save(str(place))
    except PySparkException as error:
        # Its own class cannot be sent to the test's process.
        raise RuntimeError(str(error)) from None


class _MortalTask(DataSourceArrowWriter):
    """A writer whose first task is killed once, when its files are written and nobody knows."""

    def __init__(self, writer: Any, trace: Path) -> None:
        self._writer, self._trace = writer, trace

    def write(self, iterator: Iterator[Any]) -> Any:
        message = self._writer.write(iterator)
        context = TaskContext.get()
        if context is not None and context.partitionId() + context.attemptNumber() == 0:
            self._trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: list[Any]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[Any]) -> None:
        self._writer.abort(messages)


def write_with_a_killed_task(runner: SparkRunner, query: str, place: Path, trace: Path) -> None:
    """Write the rows of `query`; a task leaves `trace` before it is killed."""

    # Made here, it is sent to Spark's Python workers with all that it holds.
    class Source(LakehandSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001
            return _MortalTask(super().writer(schema, overwrite), trace)

    session = runner._session()
    session.dataSource.register(Source)
    session.sql(query).write.format("lakehand").mode("append").save(str(place))


def write_or_say_why_not(runner: SparkRunner, *arguments: Any) -> str | None:
    """Return what Spark says of a write that fails."""
    try:
        write(runner, *arguments)
    except RuntimeError as error:
        return str(error)
    return None


def read(
    runner: SparkRunner,
    place: Path | str,
    options: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> pa.Table:
    """Return what `format("lakehand")` reads."""
    reader = _session(runner, storage).read.format("lakehand").options(**(options or {}))
    return reader.load(str(place)).toArrow()


def described(runner: SparkRunner, query: str, place: Path | str) -> list[dict[str, Any]]:
    """Return types and rows of a query, and of both ways to read a table."""
    session = _session(runner, None)
    frames = (
        session.sql(query),
        session.read.format("lakehand").load(str(place)),
        open_table(place, spark=session).to_spark(),
    )
    return [
        {
            "types": frame.schema.simpleString(),
            "rows": sorted(repr(row.asDict(recursive=True)) for row in frame.collect()),
        }
        for frame in frames
    ]


def to_spark(runner: SparkRunner, place: Path | str, options: Mapping[str, Any]) -> pa.Table:
    """Return the rows of `Table.to_spark`."""
    return open_table(place, spark=runner._session()).to_spark(**options).toArrow()


def read_twice_around(runner: SparkRunner, place: Path | str, change: str) -> list[int]:
    """Count the rows of frames that were made before the rows of `change` came, after they did."""
    session = _session(runner, None)
    frames = [
        open_table(place, spark=session).to_spark(),
        session.read.format("lakehand").load(str(place)),
    ]
    write(runner, change, place)
    return [frame.count() for frame in frames]


def run(runner: SparkRunner, source: str) -> None:
    """Run a piece of Python that has a session."""
    exec(source, {"spark": runner._session(), "lakehand": lakehand})


def _session(runner: SparkRunner, storage: Mapping[str, str] | None) -> Any:
    session = runner._session()
    source = LakehandSource.with_storage_options(storage) if storage else LakehandSource
    session.dataSource.register(source)
    return session
