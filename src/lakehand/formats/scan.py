"""The rows of a table, read from no more files than the predicate needs, and their changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from lakehand.errors import TableError, UnknownColumnError, ValidationError
from lakehand.expressions.column_facts import family_of
from lakehand.expressions.engine_types import engine_type
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import ChangeReader, SupportsChangeFeed
from lakehand.model.quantities import resolve_timestamp
from lakehand.model.snapshot import Snapshot, quoted_column
from lakehand.model.work import ChangeSpan, DataFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.worker import FormatWorker


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """What is to be read of one version. It can be sent to where it is read."""

    version: int
    worker: FormatWorker
    #: Files that may hold a row to be read.
    files: tuple[DataFile, ...]
    #: None: all of them.
    columns: tuple[str, ...] | None
    where: str | None

    def read(self, files: Sequence[DataFile] | None = None) -> pa.RecordBatchReader:
        """Stream the visible rows of `files`, else of all, under their names and types of today."""
        chosen = self.files if files is None else files
        return self.worker.read(chosen, columns=self.columns, where=self.where)

    def without_files(self) -> Self:
        """Return the same without its files, for tasks that are sent theirs one by one."""
        return replace(self, files=())

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that `read` gives."""
        return self.read(()).schema


def scan(
    table: FormatTable,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> pa.RecordBatchReader:
    """Stream the visible rows of a version, under their logical names and current types."""
    plan = plan_scan(table, columns=columns, where=where, version=version, timestamp=timestamp)
    return plan.read()


def plan_scan(
    table: FormatTable,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Scan:
    """Find the files of a version that may hold rows to be read."""
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    table.require("read", snapshot)
    predicate = None
    if where is not None:
        from lakehand.expressions.predicate import parse_predicate  # SQL takes long to import

        predicate = parse_predicate(where, snapshot.schema)
        snapshot = with_bounds(table, snapshot, columns_with_bounds(predicate, snapshot))
    return _plan(table, snapshot, columns=columns, predicate=predicate)


def _plan(
    table: FormatTable,
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None,
    predicate: Predicate | None,
) -> Scan:
    if predicate is None:
        chosen = np.arange(snapshot.file_count)
    else:
        from lakehand.expressions.pruning import may_match

        chosen = np.flatnonzero(may_match(predicate, snapshot.files))
    return Scan(
        version=snapshot.version,
        worker=table.worker(snapshot),
        files=table.data_files(snapshot, chosen.tolist()),
        columns=None if columns is None else tuple(columns),
        where=None if predicate is None else predicate.text,
    )


def with_bounds(table: FormatTable, snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """Return the same version with the bounds of columns, and its files in the same order.

    A version that is read again may list its files in another order: DuckDB joins the commits with
    the checkpoint from either side, depending on the columns that are read, and reads row groups in
    parallel. By position, a verdict about one file would be taken for that of another.
    """
    if not names:
        return snapshot
    bounded = table.snapshot(version=snapshot.version, statistics=names)
    # One file that a damaged log names twice has other rows deleted each time.
    if all(bounded.files[name].equals(snapshot.files[name]) for name in ("path", "deleted_rows")):
        return bounded
    order = _rows_of(snapshot.files, bounded.files)
    if order.null_count or bounded.file_count != snapshot.file_count:
        raise TableError(
            f"version {snapshot.version} of {snapshot.table} was read twice, with other files each"
            " time",
            table=snapshot.table,
            hint="nothing was changed; try again, and run `lakehand verify` if it happens again",
        )
    return replace(bounded, files=bounded.files.take(order))


def _rows_of(files: pa.Table, listed: pa.Table) -> pa.Array:
    """Return the row of each file in `listed`, which has more columns; null if it is not there."""
    import pyarrow.compute as pc  # a slow import, which is seldom needed here

    paths = listed["path"].combine_chunks()
    if pc.count_distinct(paths).as_py() == len(paths):
        return pc.index_in(files["path"], value_set=paths)
    # A damaged log may name one file twice, with different rows deleted.
    shared = listed.select(files.column_names)
    known = {str(entry): row for row, entry in enumerate(shared.to_pylist())}
    return pa.array([known.get(str(entry)) for entry in files.to_pylist()], pa.int64())


def columns_with_bounds(predicate: Predicate, snapshot: Snapshot) -> list[str]:
    """Return the columns whose bounds help to decide `predicate`, as `statistics` wants them."""
    return [
        quoted_column(path)
        for path, type_ in zip(predicate.references, predicate.types, strict=True)
        if path[0] not in snapshot.partition_columns and family_of(type_) is not None
    ]


def unknown_bounds(schema: pa.Schema, columns: Sequence[str], *, count: int) -> pa.Array:
    """Return the column `bounds` of `count` files without known bounds.

    UnknownColumnError if one of `columns` is not of the table.
    """
    types = {field.name: field.type for field in schema} | dict(_types(schema, ()))
    for column in columns:
        if column not in types:
            raise UnknownColumnError(column, [name for name, _ in _types(schema, ())])
    members = [(column, _bounds_type(types[column])) for column in dict.fromkeys(columns)]
    return pa.nulls(count, pa.struct(members))


def _bounds_type(kind: pa.DataType) -> pa.DataType:
    computed = engine_type(kind)
    return pa.struct({"min": computed, "max": computed, "nulls": pa.int64()})


def _types(fields: Iterable[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path = (*above, field.name)
        yield quoted_column(path), field.type
        if pa.types.is_struct(field.type):
            yield from _types(field.type, path)


def plan_changes(
    table: FormatTable,
    *,
    from_version: int | None = None,
    to_version: int | None = None,
    from_timestamp: datetime | str | None = None,
    to_timestamp: datetime | str | None = None,
    columns: Sequence[str] | None = None,
) -> ChangeReader:
    """Find the versions whose changes are asked for, and check that all of them can be read."""
    supported = require_support(table, SupportsChangeFeed, operation="changes")
    if from_version is None and from_timestamp is None:
        raise ValidationError(
            "the changes need a start: from_version or from_timestamp",
            field="from_version",
            hint="from_version=0 reads all changes, if the feed was on from the beginning",
        )
    span = ChangeSpan(
        from_version=from_version,
        to_version=to_version,
        from_timestamp=resolve_timestamp(from_version, from_timestamp),
        to_timestamp=resolve_timestamp(to_version, to_timestamp),
    )
    return supported.plan_changes(span, columns=columns)
