"""What a commit of lakehand replaced, found again by comparing its version with its base."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import VersionNotFoundError
from lakehand.formats.lance.files.fragments import data_files
from lakehand.formats.lance.log.history import diff
from lakehand.formats.lance.log.snapshot import load_snapshot
from lakehand.model.work import DataFile

if TYPE_CHECKING:
    from lakehand.formats.lance.commits.records import Record
    from lakehand.storage import Store

__all__ = ["proved_files"]


def proved_files(
    store: Store, version: int, record: Record | None
) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """Return the fragments that a version gave up and those that took their place.

    VersionNotFoundError if the version is gone. If only the one before it is, the fragments that
    were given up cannot be told any more: a file stands for them that nobody can read.
    """
    now = load_snapshot(store, version=version)
    if record is None or record.proof is None:
        return (), ()
    # Other writers may have come between the base and this version, but not right before it.
    before = version - 1
    try:
        change = diff(store, before, version)
    except VersionNotFoundError:
        is_ours = pc.is_in(now.files["path"], value_set=pa.array(record.outputs, pa.string()))
        return (_gone(before),), _at(now.files.filter(is_ours), version)
    return _at(change.removed, before), _at(change.added, version)


def _gone(version: int) -> DataFile:
    return DataFile(path=f"version {version}", bytes=0, rows=None, native={"version": version})


def _at(files: pa.Table, version: int) -> tuple[DataFile, ...]:
    """Name the version beside each file: rows that were deleted then are not those of today."""
    return tuple(
        replace(file, native={**file.native, "version": version}) for file in data_files(files)
    )
