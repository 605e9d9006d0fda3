"""Deletion files of fragments, and deletes that Lance can express."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakehand.formats.lance.connect import load_lance
from lakehand.formats.lance.reading import hidden_positions
from lakehand.formats.rows import HiddenRows, PlacedColumns, RowChangeWorker
from lakehand.formats.worker import TaskLimits
from lakehand.model.snapshot import FILE_NUMBER
from lakehand.model.work import DataFile, StagedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.rows import Positions
    from lakehand.storage import Store


def read_verdicts(
    worker: RowChangeWorker, files: Sequence[DataFile], predicate: Predicate
) -> pa.Array:
    """Say of each file whether a condition is true for all, none or some of its visible rows."""
    from lakehand.expressions.pruning import ALL, NONE, UNKNOWN  # SQL takes long to import

    columns = predicate.columns[:1] or tuple(worker.schema.names[:1])
    wanted = PlacedColumns(columns=columns, where=predicate.text)
    found = np.zeros(len(files), np.int64)
    for batch in worker.read_placed(files, wanted, limits=TaskLimits()):
        found += np.bincount(batch.column(FILE_NUMBER).to_numpy(), minlength=len(files))
    visible = np.array([worker.count_rows([file]) for file in files], np.int64)
    return pa.array(np.select([found == 0, found == visible], [NONE, ALL], default=UNKNOWN))


#: Under this name a staged file, or a file as it will be seen, carries Lance's description of it.
FRAGMENT = "fragment"
_DIRECTORY = "_deletions"
#: A number of 64 bits tells deletion files apart.
_NUMBER_BYTES = 8


def hide_rows(
    store: Store,
    dataset: Any,
    files: Sequence[tuple[DataFile, Positions]],
    fragments: Sequence[Any],
    *,
    stem: str,
) -> HiddenRows:
    """Write which rows of `fragments`, those of `files`, are deleted from now on."""
    known = {fragment.fragment_id: fragment for fragment in fragments}
    marked, objects = [], []
    for file, positions in files:
        fragment = known[file.native["id"]]
        gone = BitMap(positions) | deleted_positions(store, fragment.metadata)
        number = _number(stem, fragment.fragment_id)
        key = f"{_DIRECTORY}/{fragment.fragment_id}-{dataset.version}-{number}.bin"
        content = gone.serialize()
        store.put(key, content)
        known_rows = {**fragment.metadata.to_json(), "physical_rows": fragment.physical_rows}
        described = _described(known_rows, dataset.version, number, len(gone))
        marked.append(_entries(file, described, deletions=key, version=dataset.version))
        objects.append(StagedFile(path=key, bytes=len(content), rows=0))
    return HiddenRows(files=tuple(marked), objects=tuple(objects))


def staged_fragment(file: StagedFile | DataFile) -> dict[str, Any] | None:
    """Return how Lance describes a file that no version has so yet; None if one has."""
    text = file.native.get(FRAGMENT)
    return json.loads(text) if text is not None else None


def marked_positions(store: Store, seen: Any, marked: Sequence[dict[str, Any]]) -> list[Positions]:
    """Return the rows of `marked` fragments that are hidden in `seen`, a dataset that has them.

    Lance leaves fragments out that have no row left: of these storage is asked for what was put.
    """
    found = {one["id"]: seen.get_fragment(one["id"]) for one in marked}
    left = [fragment for fragment in found.values() if fragment is not None]
    known = {
        fragment.fragment_id: positions
        for fragment, positions in zip(left, hidden_positions(seen, left), strict=True)
    }
    for one in marked:
        if found[one["id"]] is None:
            metadata = load_lance().fragment.FragmentMetadata.from_json(json.dumps(one))
            known[one["id"]] = np.array(deleted_positions(store, metadata), np.int64)
    return [known[one["id"]] for one in marked]


def deleted_positions(store: Store, metadata: Any) -> BitMap:
    """Return the rows of a fragment that are deleted, as storage says."""
    file = metadata.deletion_file
    if file is None:
        return BitMap()
    content = store.get(file.path(metadata.id))
    if file.file_type == "bitmap":
        return BitMap.deserialize(content)
    rows = pa.ipc.open_file(pa.py_buffer(content)).read_all()
    return BitMap(np.concatenate([chunk.to_numpy() for chunk in rows["row_id"].chunks]))


def _number(stem: str, fragment: int) -> int:
    """Return the number that tells this file from all others of its fragment and version."""
    found = hashlib.sha256(f"{stem}/{fragment}".encode()).digest()
    return int.from_bytes(found[:_NUMBER_BYTES], "big")


def _described(fragment: dict[str, Any], version: int, number: int, rows: int) -> dict[str, Any]:
    deletions = {
        "read_version": version,
        "id": number,
        "file_type": "bitmap",
        "num_deleted_rows": rows,
        "base_id": None,
    }
    return {**fragment, "deletion_file": deletions}


def _entries(
    file: DataFile, fragment: dict[str, Any], *, deletions: str, version: int
) -> tuple[StagedFile, DataFile]:
    text = json.dumps(fragment)
    deleted_rows = fragment["deletion_file"]["num_deleted_rows"]
    rows = fragment["physical_rows"] - deleted_rows
    add = StagedFile(path=file.path, bytes=file.bytes, rows=rows, native={FRAGMENT: text})
    native = {**file.native, "deletions": deletions, "version": version, FRAGMENT: text}
    return add, replace(file, deleted_rows=deleted_rows, native=native)
