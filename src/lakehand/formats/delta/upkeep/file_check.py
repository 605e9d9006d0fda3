"""The files of a table as storage has them: there, of the right size, with the rows they owe.

One request a file answers all of it, because the end of a file comes with its size.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    RefusedError,
    StorageError,
    StoreUnreachableError,
)
from lakehand.formats.delta.files.deletion_vectors import DvDescriptor, read_any_cardinality
from lakehand.formats.delta.log.listed_once import paths_in_table
from lakehand.formats.delta.protocol.paths import OTHER_PATHS
from lakehand.formats.delta.upkeep.findings import finding
from lakehand.formats.delta.upkeep.footer_check import footer_contradictions
from lakehand.formats.delta.upkeep.hadoop_sums import differs_from_its_sum, sum_of
from lakehand.parquet.facts import read_metadata_and_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.parquet as pq

    from lakehand.formats.delta.files.context import WriteContext
    from lakehand.model.verification import Finding
    from lakehand.storage import Store

__all__ = ["check_files", "check_sums", "duplicate_files"]

_AT_ONCE = 16
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
    """Hold a file against the hidden checksum beside it, if it has one."""
    place, key = context.store.resolve(path)
    if differs_from_its_sum(place, key, whole=whole):
        message = f"{path} has other bytes than its checksum {sum_of(key)} says"
        yield finding("wrong_file_checksum", message, path=path, found=sum_of(key))


def _check(context: WriteContext, entry: Mapping[str, Any]) -> Iterator[Finding]:
    path, rows = entry["path"], _visible_rows(entry)
    try:
        place, key = context.store.resolve(path)
        metadata, size = read_metadata_and_size(place, key)
    except ObjectNotFoundError:
        yield finding("missing_file", f"storage does not have {path}", path=path, rows=rows)
        return
    except StoreUnreachableError:
        raise
    except StorageError as error:
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
    if isinstance(metadata, CorruptFileError):
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
    except (CorruptFileError, RefusedError) as error:
        name = "bad_deletion_vector" if _is_there(store, descriptor) else "missing_deletion_vector"
        yield _vector_finding(name, entry, descriptor, error.message)
        return
    if found != descriptor.cardinality:
        # Inside of the log a vector has no checksum, so nobody knows which of the two is wrong.
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
    except (CorruptFileError, RefusedError):
        return True
    if path is None:
        return True
    place, key = store.resolve(path)
    return place.exists(key)
