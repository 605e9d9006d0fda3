"""Rows deleted from files: by a deletion vector, or by a view without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from lakehand.errors import RefusedError, UnknownColumnError, ValidationError
from lakehand.formats.delta.deletion_vectors.format import (
    DvDescriptor,
    read_deletion_vector,
    write_deletion_vectors,
)
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.schema import PrimitiveType, is_collated
from lakehand.formats.delta.statistics.slices import loosen_statistics
from lakehand.formats.rows import HiddenRows, require_no_reserved_names
from lakehand.model.work import DataFile, StagedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.write.context import WriteContext
    from lakehand.formats.rows import Positions

_APPEND_ONLY = "delta.appendOnly"


def require_deletion(state: DeltaState, *, table: str, keys: Sequence[str]) -> None:
    """Raise RefusedError if rows of the table may not go, or its `keys` have an order of theirs."""
    require_write("rewrite", state.protocol, state.metadata, table=table)
    if state.metadata.configuration.get(_APPEND_ONLY, "false").lower() == "true":
        raise RefusedError(
            f"{table} allows no rows to be removed or changed ({_APPEND_ONLY})",
            table=table,
            operation="delete",
            feature="appendOnly",
            hint="nothing was written",
        )
    require_no_reserved_names(state.schema.names, table=table, operation="delete")
    for name in keys:
        _require_plain(state, name, table=table)


def _require_plain(state: DeltaState, name: str, *, table: str) -> None:
    column = state.schema.find(name)
    if column is None:
        raise UnknownColumnError(name, state.schema.names)
    if not isinstance(column.type, PrimitiveType) or column.type.name in {"variant", "void"}:
        raise RefusedError(
            f"rows of {table} cannot be told apart by {name!r}: it is no column of single values",
            table=table,
            operation="deduplicate",
            hint="name columns of numbers, strings, dates or the like",
        )
    if is_collated(column):
        raise RefusedError(
            f"rows of {table} cannot be compared by {name!r}: a collation decides which of its"
            " strings are equal",
            table=table,
            operation="deduplicate",
            feature="collations",
            hint="name other columns",
        )


#: Where a view of a file, which never leaves its process, says which rows it leaves out.
HIDDEN = "hidden"

_FEATURE, _ENABLED = "deletionVectors", "delta.enableDeletionVectors"
_TAKEN = ("partitionValues", "stats", "tags", "clusteringProvider", "deletionVector")


def marks_rows(context: WriteContext) -> bool:
    """Say whether the table wants rows to be deleted by vectors: it may only be able to."""
    is_on = context.configuration.get(_ENABLED, "false").lower() == "true"
    return is_on and _FEATURE in context.writer_features


def deleted_positions(context: WriteContext, file: DataFile) -> Positions:
    """Return the rows of a file that are deleted, as storage says, ascending."""
    if not file.native["add"].get("deletionVector"):
        return np.empty(0, dtype=np.int64)
    return _deleted(context, file, rows=_rows(context, file))


def without_rows(context: WriteContext, file: DataFile, positions: Positions) -> DataFile:
    """Return a view of `file` that lacks some of its visible rows."""
    deleted = _deleted(context, file, rows=_rows(context, file))
    return _view(file, _both(deleted, _checked(file, positions, deleted)))


def only_rows(context: WriteContext, file: DataFile, positions: Positions) -> DataFile:
    """Return a view of `file` that has some of its visible rows and no others."""
    rows = _rows(context, file)
    wanted = _checked(file, positions, _deleted(context, file, rows=rows))
    return _view(file, np.delete(np.arange(rows, dtype=np.int64), wanted))


def hide_rows(
    context: WriteContext, files: Sequence[tuple[DataFile, Positions]], *, stem: str
) -> HiddenRows:
    """Write the vectors of all `files`, old deletions among them, into one object."""
    bitmaps, entries = [], []
    for file, positions in files:
        rows = _rows(context, file)
        deleted = _deleted(context, file, rows=rows)
        bitmaps.append(BitMap64(_both(deleted, _checked(file, positions, deleted))))
        text = file.native["add"].get("stats")
        loose = loosen_statistics(text, rows=rows, visible=rows - len(deleted))
        entries.append(
            replace(file, rows=rows, native={"add": {**file.native["add"], "stats": loose}})
        )
    vectors = write_deletion_vectors(context.store, bitmaps, directory=stem)
    marked = tuple(_marked(file, vector) for file, vector in zip(entries, vectors, strict=True))
    return HiddenRows(files=marked, objects=_objects(context, vectors))


def _marked(file: DataFile, vector: DvDescriptor) -> tuple[StagedFile, DataFile]:
    """Return the entry of a file with a vector, to be committed and as readers see it then."""
    live = {**file.native["add"], "deletionVector": vector.to_json()}
    native = {name: live[name] for name in _TAKEN if name in live}
    rows = (file.rows or 0) - vector.cardinality
    staged = StagedFile(path=file.path, bytes=file.bytes, rows=rows, native=native)
    return staged, replace(file, deleted_rows=vector.cardinality, native={"add": live})


def _objects(context: WriteContext, vectors: Sequence[DvDescriptor]) -> tuple[StagedFile, ...]:
    paths = dict.fromkeys(vector.path for vector in vectors if vector.path is not None)
    return tuple(
        StagedFile(path=path, bytes=context.store.head(path).bytes, rows=0) for path in paths
    )


def _rows(context: WriteContext, file: DataFile) -> int:
    """Return the physical rows of a file, by its footer."""
    [facts] = context.footers.of(context.store, [file])
    return facts.rows


def _deleted(context: WriteContext, file: DataFile, *, rows: int) -> Positions:
    described = file.native["add"].get("deletionVector")
    if not described:
        return np.empty(0, dtype=np.int64)
    vector = DvDescriptor.from_json(described)
    bitmap = read_deletion_vector(context.store, vector, rows=rows)
    return np.asarray(bitmap.to_array(), dtype=np.int64)


def _checked(file: DataFile, positions: Positions, deleted: Positions) -> Positions:
    """Refuse to delete a row twice, or one that is not there: the caller has lost its way."""
    is_twice = np.any(positions[1:] <= positions[:-1])
    if is_twice or len(np.intersect1d(positions, deleted, assume_unique=True)):
        message = f"a row of {file.path} would be deleted that is gone already"
        raise ValidationError(message, field="positions", value=file.path)
    return positions


def _both(one: Positions, other: Positions) -> Positions:
    """Return all of two sets that have nothing in common."""
    return np.sort(np.concatenate((one, other)))


def _view(file: DataFile, hidden: Positions) -> DataFile:
    return replace(file, deleted_rows=len(hidden), native={**file.native, HIDDEN: hidden})
