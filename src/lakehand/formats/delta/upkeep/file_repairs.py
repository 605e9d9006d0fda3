"""Repairs of entries of files: one commit for each kind, with nothing else in it.

No file is written. A file stays as it is, and the table says something else of it, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError, RefusedError
from lakehand.formats.delta.files.deletion_vectors import DvDescriptor, read_any_cardinality
from lakehand.formats.delta.protocol.paths import OTHER_PATHS, decode_path
from lakehand.model.work import Change, Refreshed, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.formats.worker import FormatWorker
    from lakehand.model.repair import FileRepair
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import ChangeKind, DataFile
    from lakehand.storage import Store

__all__ = ["FILE_REPAIRS", "Means", "repairing_change"]

_VECTOR = "deletionVector"
_TAKEN = ("partitionValues", "tags", "clusteringProvider")


@dataclass(frozen=True, slots=True)
class Means:
    """Where files are, and what reads them."""

    store: Store
    worker: FormatWorker


if TYPE_CHECKING:
    _Parts = Callable[[Means, Sequence[DataFile]], dict[str, Any]]


def repairing_change(
    means: Means, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
) -> Change:
    """Return the change that does `repair` to `files` of the newest version."""
    kind, parts = _REPAIRS[repair]
    return Change(
        kind=kind,
        base_version=snapshot.version,
        table_id=snapshot.table_id,
        operation="REPAIR",
        parameters={"repair": repair, "files": len(files)},
        **parts(means, files),
    )


def _dropped(_means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    return {"removes": tuple(files)}


def _without_other_entries(_means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Remove what the log has of files under other spellings of their paths."""
    others = [(file, path) for file in files for path in file.native.get(OTHER_PATHS, ())]
    return {
        "removes": tuple(
            replace(
                file, path=decode_path(path), native={"add": {**file.native["add"], "path": path}}
            )
            for file, path in others
        )
    }


def _recomputed(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Compute statistics anew of files that are what the table says."""
    found = [_value(item) for item in means.worker.refresh(files)]
    return {"refreshed": tuple(item for item in found if not item.is_known)}


def _as_they_are(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """State the size and the statistics that files have now."""
    current = []
    for file in files:
        place, key = means.store.resolve(file.path)
        size = place.head(key).bytes
        if file.native["add"].get(_VECTOR) and size != file.bytes:
            raise RefusedError(
                f"rows of {file.path} are deleted by their positions in the file that was"
                " committed, and it is another one now",
                table=means.store.url,
                operation="repair",
                hint="restore the file from a backup, or drop it with --accept-data-loss",
            )
        current.append(replace(file, bytes=size, rows=None))
    found = [_value(item) for item in means.worker.refresh(current, accept_changes=True)]
    return {
        "refreshed": tuple(
            replace(item, native={**item.native, "size": item.file.bytes}) for item in found
        )
    }


def _counted(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """State as many deleted rows as vectors hold, whose bytes have the right checksum."""
    refreshed = []
    for file in files:
        described = file.native["add"][_VECTOR]
        vector = DvDescriptor.from_json(described)
        count = len(read_any_cardinality(means.store, vector, rows=file.rows))
        native = {_VECTOR: {**described, "cardinality": count}}
        refreshed.append(Refreshed(file=file, native=native))
    return {"refreshed": tuple(refreshed)}


def _without_vectors(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Have all rows of files again, those among them that were deleted by a vector."""
    whole = [replace(file, deleted_rows=0, native=_plain(file.native)) for file in files]
    staged = []
    for item in (_value(found) for found in means.worker.refresh(whole, accept_changes=True)):
        add = item.file.native["add"]
        native = {name: add[name] for name in _TAKEN if name in add} | dict(item.native)
        file = item.file
        staged.append(StagedFile(path=file.path, bytes=file.bytes, rows=item.rows, native=native))
    metrics = {"numDeletionVectorsAdded": 0, "numDeletionVectorsUpdated": 0}
    return {"removes": tuple(files), "adds": tuple(staged), "metrics": metrics}


def _plain(native: Mapping[str, Any]) -> dict[str, Any]:
    add = {name: value for name, value in native["add"].items() if name != _VECTOR}
    return {"add": add}


def _value(found: Refreshed | LakehandError) -> Refreshed:
    if isinstance(found, LakehandError):
        raise found
    return found


_REPAIRS: Mapping[FileRepair, tuple[ChangeKind, _Parts]] = {
    "drop_files": ("delete", _dropped),
    "remove_duplicate_entries": ("delete", _without_other_entries),
    "recompute_statistics": ("statistics", _recomputed),
    "accept_changed_files": ("statistics", _as_they_are),
    "correct_deletion_count": ("statistics", _counted),
    "restore_deleted_rows": ("delete", _without_vectors),
}
#: What can be done about entries of files.
FILE_REPAIRS: frozenset[FileRepair] = frozenset(_REPAIRS)
