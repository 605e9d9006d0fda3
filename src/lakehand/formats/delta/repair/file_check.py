"""Data files checked against the log: existence, size, footer, rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from lakehand import errors
from lakehand.expressions.literals import quote_string
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor, read_any_cardinality
from lakehand.formats.delta.log.listing import paths_in_table
from lakehand.formats.delta.log.log_source import open_log_source
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.protocol.names import OTHER_PATHS
from lakehand.formats.delta.protocol.schema import PrimitiveType, physical_name
from lakehand.formats.delta.repair.findings import finding
from lakehand.formats.delta.repair.log_findings import differs_from_its_sum, sum_of
from lakehand.formats.delta.statistics.bounds import row_group_facts
from lakehand.formats.delta.statistics.compute import StatisticsCollector, contradictions
from lakehand.formats.delta.statistics.merge import StatisticsRules, statistics_rules
from lakehand.formats.delta.write.file_schema import file_schema
from lakehand.parquet.columns import file_columns
from lakehand.parquet.footer_facts import read_metadata_and_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.model.verification import Finding
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

_AT_ONCE = 16


def missing_files(store: Store, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Return the data files and deletion vectors of `files` that are not there, by path."""
    paths = list(dict.fromkeys(_paths(files)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda path: _exists(store, path), paths)
        return tuple(path for path, is_there in zip(paths, found, strict=True) if not is_there)


def _paths(files: Iterable[DataFile]) -> Iterator[str]:
    for file in files:
        yield file.path
        vector = file.native["add"].get("deletionVector")
        path = None if vector is None else DvDescriptor.from_json(vector).path
        if path is not None:
            yield path


def _exists(store: Store, path: str) -> bool:
    place, key = store.resolve(path)
    return place.exists(key)


_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "HUGEINT"),
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_TREES = ("minValues", "maxValues", "nullCount")
#: Named in a message.
_SHOWN_CHARACTERS = 60


def unreadable_statistics(state: DeltaState) -> Iterator[Finding]:
    """Yield the live files whose statistics are no JSON object, or hold values of other types."""
    version = state.segment.version
    with open_log_source(state.store, state.segment) as source:
        relation = live_relation(source, "add", ("stats",))
        rows = source.run(
            f"SELECT path_key, left(stats, {_SHOWN_CHARACTERS}) FROM {relation} "
            f"WHERE stats IS NOT NULL AND {_is_unreadable(state)} ORDER BY path_key"
        )
    for path, text in rows:
        message = f"the statistics of {path} cannot be read by other engines: {text}"
        yield finding("unreadable_statistics", message, path=path, version=version, found=text)


def _is_unreadable(state: DeltaState) -> str:
    wrong = [
        "json_type(stats) <> 'OBJECT'",
        _cannot_be("stats->>'$.numRecords'", "BIGINT"),
        *(
            f"coalesce(json_type(stats, '$.{name}'), 'NULL') NOT IN ('OBJECT', 'NULL')"
            for name in _TREES
        ),
        *_wrong_values(state),
    ]
    # Nothing may be asked of a text that is no JSON.
    return f"(CASE WHEN json_valid(stats) THEN {' OR '.join(wrong)} ELSE true END)"


def _wrong_values(state: DeltaState) -> Iterator[str]:
    for column in state.schema.fields:
        kind = column.type.name if isinstance(column.type, PrimitiveType) else ""
        # A column that was widened may have bounds of its former type.
        if kind not in _TYPES or "delta.typeChanges" in column.metadata:
            continue
        name = physical_name(column, mode=state.mapping_mode)
        member = name.replace("\\", "\\\\").replace('"', '\\"')
        for tree in ("minValues", "maxValues"):
            path = quote_string(f'$.{tree}."{member}"')
            yield _cannot_be(f"stats->>{path}", _TYPES[kind])


def _cannot_be(value: str, type_: str) -> str:
    return f"(({value}) IS NOT NULL AND TRY_CAST(({value}) AS {type_}) IS NULL)"


#: Bounds of times are cut to the millisecond, upper ones too, and readers know that.
_TICK = timedelta(milliseconds=1)
#: Engines disagree on the calendar of earlier days.
_FIRST_SURE_YEAR = 1600


def footer_contradictions(
    metadata: pq.FileMetaData, bounds: Mapping[str, Any] | None, context: WriteContext
) -> Iterator[str]:
    """Yield in words every bound of the table that leaves out values which a footer has.

    `metadata` is of a footer that was checked as a whole.
    """
    named = [name for name, stated in (bounds or {}).items() if stated is not None]
    if not bounds or not named or not metadata.num_row_groups:
        return
    facts = row_group_facts(
        [metadata.row_group(index) for index in range(metadata.num_row_groups)],
        file_columns(metadata.schema.to_arrow_schema()),
        [(name,) for name in named],
        schema=context.schema,
        mode=context.mode,
        partition={},
    )
    if "bounds" not in facts.column_names:
        return
    found = facts["bounds"].combine_chunks()
    for name in (item.name for item in found.type):
        column = found.field(name)
        low, high = _value(pc.min(column.field("min"))), _value(pc.max(column.field("max")))
        stated = bounds[name]
        if _is_less(low, stated["min"]):
            yield f"{name} has {low} in the footer, and {stated['min']} as its least value"
        if _is_less(stated["max"], high, slack=True):
            yield f"{name} has {high} in the footer, and {stated['max']} as its greatest value"


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _is_less(one: Any, other: Any, *, slack: bool = False) -> bool:
    if one is None or other is None:
        return False
    if isinstance(one, date) and min(one.year, other.year) < _FIRST_SURE_YEAR:
        return False
    if slack and isinstance(one, datetime):
        return bool(other - one >= _TICK)
    return bool(one < other)


if TYPE_CHECKING:
    ReadRows = Callable[[DataFile], pa.RecordBatchReader]

_ALL_COLUMNS = {"delta.dataSkippingNumIndexedCols": "-1"}
_UNREADABLE = (errors.CorruptFileError, errors.SchemaMismatchError, errors.ObjectNotFoundError)
#: Named in a message; the others are as wrong.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RowChecker:
    """Decodes one file after the other."""

    context: WriteContext
    read: ReadRows
    _stack: ExitStack = field(default_factory=ExitStack)
    _known: list[StatisticsCollector] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, file: DataFile) -> Iterator[Finding]:
        """Yield what is wrong with the visible rows of `file`."""
        visible = None if file.rows is None else file.rows - file.deleted_rows
        try:
            count = self._decode(file)
        except _UNREADABLE as error:
            yield finding("unreadable_rows", error.message, path=file.path, rows=visible)
            return
        if visible is not None and count != visible:
            message = f"{file.path} shows {count:,} rows where the table says {visible:,}"
            yield finding("wrong_row_count", message, path=file.path, expected=visible, found=count)
        wrong = self._wrong_statistics(file)
        if wrong:
            yield finding(
                "wrong_statistics",
                f"the statistics of {file.path} are wrong: {'; '.join(wrong[:_NAMED])}",
                path=file.path,
                found="; ".join(wrong),
            )

    def _decode(self, file: DataFile) -> int:
        schema = file_schema(self.context.data_fields(), mode=self.context.mode)
        collector = self._collector()
        collector.forget()
        count = 0
        for batch in self.read(file):
            count += batch.num_rows
            if len(schema.arrow):
                collector.add(schema.to_file(pa.Table.from_batches([batch])))
        if not count and len(schema.arrow):
            collector.add(schema.arrow.empty_table())
        return count

    def _wrong_statistics(self, file: DataFile) -> Sequence[str]:
        leaves = self._rules().leaves
        if not leaves:
            return ()
        _, facts = self._collector().facts()
        text = file.native["add"].get("stats")
        return contradictions(text, leaves, facts, hides_rows=bool(file.deleted_rows))

    def _collector(self) -> StatisticsCollector:
        """Return the collector, which is opened once: that costs more than a small file."""
        if not self._known:
            made = StatisticsCollector(self._rules())
            self._known.append(self._stack.enter_context(made))
        return self._known[0]

    def _rules(self) -> StatisticsRules:
        """Return rules for all columns: the table may have wanted others once."""
        return statistics_rules(
            self.context.schema,
            _ALL_COLUMNS,
            mode=self.context.mode,
            partition_columns=self.context.partition_columns,
        )


_FACTS = ("path", "bytes", "rows", "deleted_rows", "bounds")


def check_files(context: WriteContext, files: pa.Table) -> list[Finding]:
    """Look at every file of `files`, which has the columns of `Snapshot.files`, in parallel."""
    names = [name for name in _FACTS if name in files.column_names]
    entries = files.select(names).append_column(
        "vector", pc.struct_field(files["native"], "deletion_vector")
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda entry: list(_check(context, entry)), entries.to_pylist())
        return [item for findings in found for item in findings]


def duplicate_files(files: pa.Table, *, table: str, version: int) -> Iterator[Finding]:
    """Yield files that the table has more than once, under one spelling or several."""
    paths = paths_in_table(files["path"], table) or files["path"]
    counted = pa.table({"path": paths}).group_by("path").aggregate([("path", "count")])
    several = counted.filter(pc.greater(counted["path_count"], 1))
    for path, count in zip(*(column.to_pylist() for column in several.columns), strict=True):
        message = f"version {version} has {path} {count} times, with other rows deleted each time"
        yield finding("duplicate_file", message, path=path, version=version, found=count)
    spellings = pc.struct_field(files["native"], OTHER_PATHS)
    respelled = files.select(["path"]).append_column("others", spellings)
    for row in respelled.filter(pc.is_valid(spellings)).to_pylist():
        names = ", ".join(row["others"])
        message = f"version {version} lists {row['path']} under other paths too: {names}"
        yield finding("duplicate_entry", message, path=row["path"], version=version, found=names)


def check_sums(context: WriteContext, path: str, *, whole: bool) -> Iterator[Finding]:
    """Compare a file with its hidden checksum file, if it has one."""
    place, key = context.store.resolve(path)
    if differs_from_its_sum(place, key, whole=whole):
        message = f"{path} has other bytes than its checksum {sum_of(key)} says"
        yield finding("wrong_file_checksum", message, path=path, found=sum_of(key))


def _check(context: WriteContext, entry: Mapping[str, Any]) -> Iterator[Finding]:
    path, rows = entry["path"], _visible_rows(entry)
    try:
        place, key = context.store.resolve(path)
        metadata, size = read_metadata_and_size(place, key)
    except errors.ObjectNotFoundError:
        yield finding("missing_file", f"storage does not have {path}", path=path, rows=rows)
        return
    except errors.StoreUnreachableError:
        raise
    except errors.StorageError as error:
        yield finding("unreachable_file", error.message, path=path, rows=rows)
        return
    if size != entry["bytes"]:
        yield finding(
            "wrong_size",
            f"{path} has {size:,} bytes where the table says {entry['bytes']:,}",
            path=path,
            expected=entry["bytes"],
            found=size,
        )
    yield from check_sums(context, path, whole=False)
    if isinstance(metadata, errors.CorruptFileError):
        yield finding("unreadable_footer", metadata.message, path=path, rows=rows)
        return
    yield from _check_footer(context, entry, metadata)
    yield from _check_vector(context.store, entry, metadata.num_rows)


def _check_footer(
    context: WriteContext, entry: Mapping[str, Any], metadata: pq.FileMetaData
) -> Iterator[Finding]:
    path = entry["path"]
    if entry["rows"] is not None and metadata.num_rows != entry["rows"]:
        yield finding(
            "wrong_row_count",
            f"{path} holds {metadata.num_rows:,} rows where the table says {entry['rows']:,}",
            path=path,
            expected=entry["rows"],
            found=metadata.num_rows,
        )
    elif not entry["deleted_rows"]:
        wrong = [*footer_contradictions(metadata, entry.get("bounds"), context)]
        if wrong:
            message = f"the statistics of {path} contradict its footer: {'; '.join(wrong)}"
            yield finding("wrong_statistics", message, path=path, found="; ".join(wrong))


def _visible_rows(entry: Mapping[str, Any]) -> int | None:
    return None if entry["rows"] is None else entry["rows"] - entry["deleted_rows"]


def _check_vector(store: Store, entry: Mapping[str, Any], rows: int) -> Iterator[Finding]:
    if entry["vector"] is None:
        return
    # The names of the members are those of the descriptor.
    descriptor = DvDescriptor(**entry["vector"])
    try:
        found = len(read_any_cardinality(store, descriptor, rows=rows))
    except (errors.CorruptFileError, errors.RefusedError) as error:
        name = "bad_deletion_vector" if _is_there(store, descriptor) else "missing_deletion_vector"
        yield _vector_finding(name, entry, descriptor, error.message)
        return
    if found != descriptor.cardinality:
        # An inline vector has no checksum, so it is unknown which of the two is wrong.
        name = "bad_deletion_vector" if descriptor.path is None else "wrong_deletion_count"
        message = f"its vector holds {found:,} rows where the log says {descriptor.cardinality:,}"
        yield _vector_finding(name, entry, descriptor, message, found=found)


def _vector_finding(
    name: str, entry: Mapping[str, Any], vector: DvDescriptor, why: str, *, found: int | None = None
) -> Finding:
    return finding(
        name,
        f"the deleted rows of {entry['path']} are not known: {why}",
        path=entry["path"],
        expected=f"{vector.cardinality:,} deleted rows",
        found=None if found is None else f"{found:,} deleted rows",
        rows=_visible_rows(entry),
    )


def _is_there(store: Store, descriptor: DvDescriptor) -> bool:
    try:
        path = descriptor.path
    except (errors.CorruptFileError, errors.RefusedError):
        return True
    if path is None:
        return True
    place, key = store.resolve(path)
    return place.exists(key)
