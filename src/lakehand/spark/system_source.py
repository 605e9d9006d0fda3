"""System tables and jobs for Spark: a data source, a table function, and names of the catalog.

What they read and submit is passed in as functions: this package is below the service.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Name of the data source, and of the table function.
SYSTEM_SOURCE, SUBMIT = "lakehand_system", "lakehand_submit"
_JOB = "job BIGINT, state STRING"


def register_source(spark: Any, read: Callable[[str], pa.Table], names: Sequence[str]) -> None:
    """Register the data source of system tables; `read` returns the rows of one by its name."""
    known = tuple(names)

    # Defined here, so that it is pickled by value, with its functions.
    class SystemSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return SYSTEM_SOURCE

        def schema(self) -> StructType:
            return from_arrow_schema(read(self._table()).schema)

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _SystemReader(read, self._table())

        def _table(self) -> str:
            table = self.options.get("table") or self.options.get("path") or ""
            if table.removeprefix("system.") not in known:
                message = f"there is no system table {table!r}; there are {', '.join(known)}"
                hint = "give option('table', 'jobs')"
                raise ValidationError(message, field="table", hint=hint)
            return table.removeprefix("system.")

    spark.dataSource.register(SystemSource)


class _SystemReader(DataSourceReader):
    """Reads a system table in one task."""

    def __init__(self, read: Callable[[str], pa.Table], table: str) -> None:
        self._read = read
        self._table = table

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield from self._read(self._table).to_batches()


def register_submit(spark: Any, submit: Callable[[str, str], tuple[int, str]]) -> None:
    """Register the table function that queues a job and returns its number and state.

    Spark runs it once for each action, and once more for each use in a query. It may therefore only
    queue a job: the same job again is the one that is queued already.
    """
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    functions = import_module(f"pyspark.sql{'.connect' if is_connect else ''}.functions")

    class Submit:
        def eval(self, table: str, statement: str = "MAINTAIN") -> Iterator[tuple[int, str]]:
            yield submit(table, statement)

    spark.udtf.register(SUBMIT, functions.udtf(Submit, returnType=_JOB))


def find_location(spark: Any, name: str) -> str | None:
    """Return where the table with this name is; None if the session's catalog has none."""
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
    if not spark.catalog.tableExists(quoted):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    places = [row[1] for row in rows if row[0] == "Location" and row[1]]
    return str(places[-1]) if places else None
