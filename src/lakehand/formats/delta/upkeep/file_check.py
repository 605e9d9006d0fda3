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
from lakehand.formats.delta.files.deletion_vectors import DvDescriptor, read_deletion_vector
from lakehand.formats.delta.upkeep.findings import finding
from lakehand.parquet.facts import read_facts_and_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.model.verification import Finding
    from lakehand.storage import Store

__all__ = ["check_files", "duplicate_files"]

_AT_ONCE = 16
_FACTS = ("path", "bytes", "rows", "deleted_rows")


def check_files(store: Store, files: pa.Table) -> list[Finding]:
    """Look at every file of `files`, which has the columns of `Snapshot.files`, in parallel."""
    entries = files.select(_FACTS).append_column(
        "vector", pc.struct_field(files["native"], "deletion_vector")
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda entry: list(_check(store, entry)), entries.to_pylist())
        return [item for findings in found for item in findings]


def duplicate_files(files: pa.Table, *, version: int) -> Iterator[Finding]:
    """Yield files that the table has more than once, with other rows deleted each time."""
    counted = files.select(["path"]).group_by("path").aggregate([("path", "count")])
    several = counted.filter(pc.greater(counted["path_count"], 1))
    for path, count in zip(*(column.to_pylist() for column in several.columns), strict=True):
        message = f"version {version} has {path} {count} times"
        yield finding("duplicate_file", message, path=path, version=version, found=count)


def _check(store: Store, entry: Mapping[str, Any]) -> Iterator[Finding]:
    path, rows = entry["path"], _visible_rows(entry)
    try:
        place, key = store.resolve(path)
        facts, size = read_facts_and_size(place, key)
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
    if isinstance(facts, CorruptFileError):
        yield finding("unreadable_footer", facts.message, path=path, rows=rows)
        return
    if entry["rows"] is not None and facts.rows != entry["rows"]:
        yield finding(
            "wrong_row_count",
            f"{path} holds {facts.rows:,} rows where the table says {entry['rows']:,}",
            path=path,
            expected=entry["rows"],
            found=facts.rows,
        )
    yield from _check_vector(store, entry, facts.rows)


def _visible_rows(entry: Mapping[str, Any]) -> int | None:
    return None if entry["rows"] is None else entry["rows"] - entry["deleted_rows"]


def _check_vector(store: Store, entry: Mapping[str, Any], rows: int) -> Iterator[Finding]:
    if entry["vector"] is None:
        return
    # The names of the members are those of the descriptor.
    descriptor = DvDescriptor(**entry["vector"])
    try:
        read_deletion_vector(store, descriptor, rows=rows)
    except (CorruptFileError, RefusedError) as error:
        name = "bad_deletion_vector" if _is_there(store, descriptor) else "missing_deletion_vector"
        yield finding(
            name,
            f"the deleted rows of {entry['path']} are not known: {error.message}",
            path=entry["path"],
            expected=f"{descriptor.cardinality:,} deleted rows",
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
