"""Rows of fragments: as readers see them, and as the digest counts them."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lakehand.duckdb_pool import connect
from lakehand.expressions.evaluate import keep_true
from lakehand.formats.lance.comparable_types import plain_batch, plain_schema
from lakehand.formats.lance.connect import DATA_DIRECTORY, load_lance, told, translated
from lakehand.model.batches import gathered, join_batches
from lakehand.model.snapshot import FILE_NUMBER, POSITION, ROW_ID, ROW_VERSION
from lakehand.prove.deep_lists import hashable_schema
from lakehand.prove.digest import hashable, placed_lanes_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.rows import PlacedColumns, Positions
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

LANCE_ROW_ID, CREATED, UPDATED = "_rowid", "_row_created_at_version", "_row_last_updated_at_version"
#: Columns that Lance returns in addition to those of the table.
IDENTITY = (LANCE_ROW_ID, CREATED, UPDATED)
_VERSION_COLUMNS = {
    CREATED: "created_at_version_meta",
    UPDATED: "last_updated_at_version_meta",
}
_BYTES, _NUMBER = 2, 0
_SEVEN_BITS, _MORE = 0x7F, 0x80


def described_identity(rows: Sequence[pa.RecordBatch]) -> dict[str, Any]:
    """Return what is added to the metadata of a fragment; `rows` have IDENTITY, sorted."""
    moved = pa.Table.from_batches(rows)
    ids = load_lance().fragment.RowIdSequence(moved[LANCE_ROW_ID]).to_inline_metadata()
    versions = {
        name: {"inline": list(version_runs(moved[column].to_numpy()))}
        for column, name in _VERSION_COLUMNS.items()
    }
    return {"row_id_meta": ids.asdict(), **versions}


def version_runs(versions: npt.NDArray[Any]) -> bytes:
    """Return the versions of rows as Lance stores them: a span of rows, then their version.

    >>> list(version_runs(np.array([1] * 64)))
    [10, 8, 10, 4, 10, 2, 16, 64, 16, 1]
    """
    starts = np.flatnonzero(np.append(True, versions[1:] != versions[:-1]))
    ends = np.append(starts[1:], len(versions))
    runs = zip(starts.tolist(), ends.tolist(), versions[starts].tolist(), strict=True)
    return b"".join(_run(*run) for run in runs)


def _run(start: int, end: int, version: int) -> bytes:
    # A number that is zero is left out, as in every message of this kind.
    span = (_field(1, start) if start else b"") + _field(2, end)
    return _message(1, _message(1, _message(1, span)) + _field(2, version))


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3 | _NUMBER) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > _SEVEN_BITS:
        found.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    return bytes([*found, value])


#: Where a row lies, as Lance hands it out: the fragment above, and the row in it below.
ROW_ADDRESS = "_rowaddr"
_HALF = np.uint64(32)
_LOWER = np.uint64(2**32 - 1)
_ONLY, _WITHOUT = "only", "without"


def without_rows(file: DataFile, positions: Positions) -> DataFile:
    """Return `file` as a reader should see it without some of its rows."""
    return replace(file, native={**file.native, _WITHOUT: _text(positions)})


def only_rows(file: DataFile, positions: Positions) -> DataFile:
    """Return `file` as a reader should see it with no other rows."""
    return replace(file, native={**file.native, _ONLY: _text(positions)})


def places_of(addresses: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the fragment of each row, and where it lies there, deleted rows counted."""
    numbers = addresses.to_numpy()
    return (numbers >> _HALF).astype(np.int64), (numbers & _LOWER).astype(np.int64)


class Shown:
    """Which rows of some fragments readers should see."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        #: By fragment: the rows that are named, and whether it is those that are seen.
        self._named = {
            file.native["id"]: _named(file.native)
            for file in files
            if _ONLY in file.native or _WITHOUT in file.native
        }

    def __bool__(self) -> bool:
        """Whether any row is hidden."""
        return bool(self._named)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are to be seen, without their addresses."""
        fragments, positions = places_of(batch.column(ROW_ADDRESS))
        is_shown = np.ones(batch.num_rows, np.bool_)
        for fragment, (named, is_seen) in self._named.items():
            chosen = fragments == fragment
            is_shown[chosen] = np.isin(positions[chosen], named) == is_seen
        return batch.filter(pa.array(is_shown)).drop_columns([ROW_ADDRESS])


def _named(native: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    kind = _ONLY if _ONLY in native else _WITHOUT
    rows = BitMap.deserialize(base64.b85decode(native[kind]))
    return np.array(rows, np.int64), kind == _ONLY


def _text(positions: Positions) -> str:
    return base64.b85encode(BitMap(positions).serialize()).decode()


_LANCE_ROW_VERSION = UPDATED
#: Payloads of blob columns, which readers otherwise get as places in files that change.
_WITH_PAYLOADS = "all_binary"
#: Of a batch of rows, and how many it has whatever they take.
_BATCH_BYTES = 2**20
_LEAST_ROWS, _MOST_ROWS = 8, 16 * 1024
#: Fragments that tell how long rows are.
_SAMPLE = 16
#: Batches of fewer rows are joined before they are hashed.
FEW_ROWS = 512
#: Rows of a separate query, which has a fixed cost.
_QUERY_BYTES = 16 * 2**20
#: What is read ahead: memory that is reused at once need not be cleared again.
_BUFFER_BYTES = 32 * 2**20
#: What a value takes, as a rule.
_USUAL_BYTES = 8


def scanned(
    dataset: Any, fragments: Sequence[Any] | None, scanner: Any
) -> Iterator[pa.RecordBatch]:
    """Stream what a scanner reads, once the metadata of all its files is known to be readable.

    An error in the middle of a stream is handed over as a C string: one that quotes a damaged name
    with a zero byte in it makes Lance abort the process. A file that is opened by itself raises.
    """
    chosen = dataset.get_fragments() if fragments is None else fragments
    paths = [file.path for one in chosen for file in one.metadata.files if _has_metadata(file)]
    if len(paths) > _FEW_FILES:
        with ThreadPoolExecutor(_FEW_FILES) as threads:
            list(threads.map(partial(_open_file, dataset), paths))
    else:
        for path in paths:
            _open_file(dataset, path)
    yield from scanner.to_batches()


#: More files than this are opened in parallel, this many at a time.
_FEW_FILES = 8


def _has_metadata(file: Any) -> bool:
    """Say whether a file has the metadata of its pages at its end, and is below this root."""
    is_new = file.file_major_version >= 2  # noqa: PLR2004  the number of the format
    return is_new and getattr(file, "base_id", None) is None


def _open_file(dataset: Any, path: str) -> None:
    from lance.file import LanceFileReader

    options = getattr(dataset, "_storage_options", None)
    LanceFileReader(f"{dataset.uri.rstrip('/')}/{DATA_DIRECTORY}/{path}", storage_options=options)


def read_rows(
    store: Store,
    dataset: Any,
    fragments: Sequence[Any],
    *,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    row_identity: bool = False,
    shown: Shown | None = None,
) -> pa.RecordBatchReader:
    """Stream the visible rows of `fragments`, in their order."""
    extra = [name for name in predicate.columns if name not in columns] if predicate else []
    with translated(store, "to read fragments"):
        scanner = dataset.scanner(
            columns=[*columns, *extra],
            fragments=list(fragments),
            with_row_id=row_identity,
            with_row_address=bool(shown),
            batch_size=_rows_a_batch(dataset.schema, fragments),
            io_buffer_size=_BUFFER_BYTES,
        )
        schema = pa.schema([scanner.projected_schema.field(name) for name in columns])
    if row_identity:
        schema = schema.append(pa.field(ROW_ID, pa.uint64()))
    read = told(store, scanned(dataset, fragments, scanner))
    found = map(shown.filter, read) if shown else read
    batches = _selected(found, schema, predicate) if fragments else iter(())
    return pa.RecordBatchReader.from_batches(schema, batches)


def identified_schema(dataset: Any) -> pa.Schema:
    """Return the columns of `identified_rows`."""
    fields = [pa.field(name, pa.uint64()) for name in IDENTITY]
    return pa.schema([*dataset.schema, *fields])


def identified_rows(
    store: Store, dataset: Any, fragments: Sequence[Any]
) -> Iterator[pa.RecordBatch]:
    """Stream the visible rows of `fragments`, in their order, with what they keep as they move."""
    with translated(store, "to read fragments"):
        names = dataset.schema.names
        scanner = dataset.scanner(
            columns=[*names, CREATED, UPDATED],
            fragments=list(fragments),
            with_row_id=True,
            batch_size=_rows_a_batch(dataset.schema, fragments),
            io_buffer_size=_BUFFER_BYTES,
        )
    for batch in told(store, scanned(dataset, fragments, scanner)) if fragments else ():
        yield batch.select([*names, *IDENTITY])


def _selected(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    names = [LANCE_ROW_ID if name == ROW_ID else name for name in schema.names]
    for batch in batches:
        if predicate is None and batch.schema == schema:
            yield batch
            continue
        wanted = batch if predicate is None else keep_true(predicate, batch)
        if wanted.num_rows:
            columns = [wanted.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def digested_schema(dataset: Any) -> pa.Schema:
    """Return the columns of `digested_rows`: all of the table's, and ids that rows keep."""
    return plain_schema(_counting_scanner(dataset, []).projected_schema)


def placed_schema(dataset: Any) -> pa.Schema:
    """Return the types of all columns as `placed_rows` hands them out."""
    names = dataset.schema.names
    scanner = dataset.scanner(columns=names, fragments=[], blob_handling=_WITH_PAYLOADS)
    return plain_schema(scanner.projected_schema)


def digested_rows(
    dataset: Any, fragments: Sequence[Any] | None, *, shown: Shown | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream the visible rows of `fragments`, all of the dataset's if None, in plain types."""
    if fragments is not None and not fragments:
        return
    scanner = _counting_scanner(dataset, fragments, with_row_address=bool(shown))
    batches = scanned(dataset, fragments, scanner)
    found = map(shown.filter, batches) if shown else batches
    for batch in joined(found):
        yield plain_batch(batch)


def hashed_places(
    dataset: Any, fragments: Sequence[Any], *, numbers: Mapping[int, int]
) -> Iterator[pa.RecordBatch]:
    """Stream the hashes of rows as they are counted, and their places."""
    if not fragments:
        return
    number_of = _numbers_of(numbers)
    query = placed_lanes_query("SELECT * FROM batch", hashable_schema(digested_schema(dataset)))
    scanner = _counting_scanner(dataset, fragments, with_row_address=True)
    with connect(threads=1) as connection:
        batches = scanned(dataset, fragments, scanner)
        for batch in joined(batches, rows=_MOST_ROWS, size=_QUERY_BYTES):
            found, positions = places_of(batch.column(ROW_ADDRESS))
            rows = pa.Table.from_batches([plain_batch(batch.drop_columns([ROW_ADDRESS]))])
            rows = rows.append_column(FILE_NUMBER, [number_of[found]])
            connection.register("batch", hashable(rows.append_column(POSITION, [positions])))
            yield from connection.sql(query).to_arrow_table().to_batches()


def hidden_positions(dataset: Any, fragments: Sequence[Any]) -> list[np.ndarray]:
    """Return the rows of each fragment that Lance leaves out when it reads it."""
    is_hidden = {one.fragment_id: np.ones(one.physical_rows, np.bool_) for one in fragments}
    scanner = dataset.scanner(columns=[], fragments=list(fragments), with_row_address=True)
    for batch in scanned(dataset, fragments, scanner) if fragments else ():
        found, positions = places_of(batch.column(ROW_ADDRESS))
        for fragment in np.unique(found).tolist():
            is_hidden[fragment][positions[found == fragment]] = False
    return [np.flatnonzero(is_hidden[one.fragment_id]) for one in fragments]


def placed_rows(
    dataset: Any,
    fragments: Sequence[Any],
    wanted: PlacedColumns,
    *,
    predicate: Predicate | None,
    numbers: Mapping[int, int],
) -> Iterator[pa.RecordBatch]:
    """Stream rows with their places, in plain types or in their own.

    `numbers` are those of files, by fragment.
    """
    extra = [name for name in predicate.columns if name not in wanted.columns] if predicate else []
    versions = [_LANCE_ROW_VERSION] if wanted.row_identity else []
    scanner = dataset.scanner(
        columns=[*wanted.columns, *extra, *versions],
        fragments=list(fragments),
        with_row_id=wanted.row_identity,
        with_row_address=True,
        blob_handling=_WITH_PAYLOADS,
    )
    number_of = _numbers_of(numbers)
    for batch in scanned(dataset, fragments, scanner) if fragments else ():
        chosen = batch if predicate is None else keep_true(predicate, batch)
        if chosen.num_rows:
            yield _placed(chosen, wanted, number_of)


def _numbers_of(numbers: Mapping[int, int]) -> np.ndarray:
    found = np.full(max(numbers, default=0) + 1, -1, np.int32)
    found[list(numbers)] = list(numbers.values())
    return found


def _placed(batch: pa.RecordBatch, wanted: PlacedColumns, number_of: np.ndarray) -> pa.RecordBatch:
    rows = batch.select(wanted.columns)
    found = rows if wanted.in_own_types else plain_batch(rows)
    columns = dict(zip(wanted.columns, found.columns, strict=True))
    if wanted.row_identity:
        columns[ROW_ID] = batch.column(LANCE_ROW_ID).cast(pa.int64())
        columns[ROW_VERSION] = batch.column(_LANCE_ROW_VERSION).cast(pa.int64())
    fragments, positions = places_of(batch.column(ROW_ADDRESS))
    columns[FILE_NUMBER] = pa.array(number_of[fragments])
    columns[POSITION] = pa.array(positions)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def joined(
    batches: Iterable[pa.RecordBatch], *, rows: int = FEW_ROWS, size: int = _BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Join batches up to these limits of rows and bytes: small fragments come one by one."""
    return map(join_batches, gathered(batches, rows=rows, size=size))


def _counting_scanner(
    dataset: Any, fragments: Sequence[Any] | None, *, with_row_address: bool = False
) -> Any:
    chosen = dataset.get_fragments() if fragments is None else list(fragments)
    return dataset.scanner(
        columns=dataset.schema.names,
        fragments=chosen,
        with_row_id=dataset.has_stable_row_ids,
        with_row_address=with_row_address,
        blob_handling=_WITH_PAYLOADS,
        scan_in_order=False,
        batch_size=_rows_a_batch(dataset.schema, chosen),
        io_buffer_size=_BUFFER_BYTES,
    )


def _rows_a_batch(schema: pa.Schema, fragments: Sequence[Any]) -> int:
    """Return how many rows are read at once: fewer if vectors, strings or blobs make them wide."""
    wide = sum(_width(kind) for kind in schema.types)
    sample = [one.metadata for one in fragments[:: len(fragments) // _SAMPLE + 1]]
    size = sum(file.file_size_bytes or 0 for one in sample for file in one.files)
    # Manifests of older writers do not state the row count of a fragment.
    rows = sum(one.physical_rows or 0 for one in sample)
    row_bytes = max(1, wide, int(size // max(1, rows)))
    return max(_LEAST_ROWS, min(_MOST_ROWS, _BATCH_BYTES // row_bytes))


def _width(kind: pa.DataType) -> int:
    if pat.is_fixed_size_list(kind):
        return int(kind.list_size * _width(kind.value_type))
    return _USUAL_BYTES
