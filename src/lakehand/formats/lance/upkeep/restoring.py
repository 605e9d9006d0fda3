"""One commit that gives a table the content of an earlier version again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.formats.lance.files.fragments import data_files, fragment_keys
from lakehand.model.work import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = ["missing_files", "restoring_change"]


def restoring_change(snapshot: Snapshot, wanted: Snapshot) -> Change:
    """Return the change from `snapshot`, the newest version, back to the content of `wanted`."""
    live, kept = fragment_keys(snapshot.files), fragment_keys(wanted.files)
    is_described_alike = (snapshot.schema, snapshot.properties) == (
        wanted.schema,
        wanted.properties,
    )
    return Change(
        kind="restore",
        base_version=snapshot.version,
        operation="restore",
        parameters={"version": wanted.version},
        removes=data_files(snapshot.files, _rows_beyond(live, kept)),
        restored=data_files(wanted.files, _rows_beyond(kept, live)),
        native=() if is_described_alike else ({"version": wanted.version},),
        reads_rows=True,
    )


def _rows_beyond(keys: Sequence[str], others: Sequence[str]) -> list[int]:
    known = set(others)
    return [row for row, key in enumerate(keys) if key not in known]


def missing_files(store: Store, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Return what `files` need to be read and storage does not have."""
    wanted = [key for file in files for key in (*file.native["files"], file.native["deletions"])]
    keys = list(dict.fromkeys(key for key in wanted if key))
    found = {info.key for info in store.head_all(keys)}
    return tuple(key for key in keys if key not in found)
