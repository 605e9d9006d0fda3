"""What may not be done to a Lance table, and because of which of its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import RefusedError, UnknownColumnError
from lakehand.formats.lance.connect import has_detached_versions
from lakehand.formats.rows import require_no_reserved_names
from lakehand.model.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakehand.formats.base import Operation
    from lakehand.formats.lance.snapshot import LanceState
    from lakehand.model.table_head import TableHead
    from lakehand.storage import Store

_LEGACY = "0.1"
#: Rows whose ids, 4 to 20 bytes each, are kept in every version when they are not ascending.
_MOST_MOVED_IDS = 2_000_000
_BLOB = b"lance-encoding:blob"
_BLOB_TYPE = "lance.blob"
#: Types of others whose values are equal, and follow each other, as what they are stored as does.
_AS_STORED = ("arrow.uuid", "arrow.json", "lance.json", _BLOB_TYPE)


def _is_strange(kind: pa.DataType) -> bool:
    return not getattr(kind, "extension_name", _BLOB_TYPE).startswith(_AS_STORED)


#: Hashed by their bits, which say nothing of which value is the greater one, or of equal zeros.
_WITHOUT_ORDER = (
    pat.is_nested,
    pat.is_float16,
    pat.is_decimal256,
    pat.is_interval,
    _is_strange,
)


def require(store: Store, operation: Operation, snapshot: Snapshot | TableHead) -> None:
    """Raise RefusedError, which names the feature, if `operation` is not safe on this table."""
    for feature, why in _obstacles(store, operation, snapshot):
        raise RefusedError(
            f"{operation} is refused on {store.url}: {why}",
            table=store.url,
            operation=operation,
            feature=feature,
            hint="nothing was changed",
        )


def _obstacles(
    store: Store, operation: Operation, snapshot: Snapshot | TableHead
) -> Iterator[tuple[str, str]]:
    state: LanceState = snapshot.native
    if operation in ("order", "append"):
        yield from _obstacles_to_writing(snapshot.schema, state)
    if operation == "order" and state.has_stable_row_ids and isinstance(snapshot, Snapshot):
        yield from _obstacles_to_moving_ids(snapshot)
    if operation in ("rewrite", "vacuum") and state.has_other_bases:
        yield "base paths", "some of its files lie outside of its root, as in a shallow clone"
    if operation == "vacuum" and has_detached_versions(store):
        yield "detached versions", "it has versions outside of its history"


def _obstacles_to_moving_ids(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield that row ids out of their order, each of which is in every manifest, are too many."""
    rows = pc.sum(snapshot.files["rows"]).as_py() or 0
    if rows > _MOST_MOVED_IDS:
        why = (
            f"every version would list the ids of its {rows:,} rows one by one, and lakehand orders"
            f" tables with stable row ids of up to {_MOST_MOVED_IDS:,} rows"
        )
        yield "stable row ids", why


def obstacles_to_recoding(schema: pa.Schema, state: LanceState) -> Iterator[tuple[str, str]]:
    """Yield why Lance itself must rewrite fragments whose rows stay in their order."""
    if state.indices:
        yield "indices", "Lance tells its indices where rows went"
    if state.has_stable_row_ids:
        yield "stable row ids", "Lance keeps ids in the order of the rows"
    yield from _obstacles_to_writing(schema, state)


def _obstacles_to_writing(schema: pa.Schema, state: LanceState) -> Iterator[tuple[str, str]]:
    """Yield what files that lakehand writes itself cannot hold."""
    if state.storage_version == _LEGACY:
        yield "legacy files", "its files are of Lance's first format"
    blobs = [field.name for field in schema if _is_blob(field)]
    if blobs:
        yield "blob columns", f"payloads of {blobs[0]} are written by Lance alone"


def _is_blob(field: pa.Field) -> bool:
    """Say whether a column is of blobs, or has some within."""
    name = getattr(field.type, "extension_name", "")
    if name.startswith(_BLOB_TYPE) or _BLOB in (field.metadata or {}):
        return True
    return any(_is_blob(field.type.field(number)) for number in range(field.type.num_fields))


def require_deletion(store: Store, snapshot: Snapshot, *, keys: Sequence[str]) -> None:
    """Raise RefusedError if rows may not be deleted, or `keys` do not tell rows apart."""
    require(store, "rewrite", snapshot)
    require_no_reserved_names(snapshot.schema.names, table=store.url, operation="delete")
    for name in keys:
        if name not in snapshot.schema.names:
            raise UnknownColumnError(name, snapshot.schema.names)
        kind = snapshot.schema.field(name).type
        if any(is_kind(kind) for is_kind in _WITHOUT_ORDER):
            raise RefusedError(
                f"rows of {store.url} cannot be told apart by {name!r}, which is {kind}",
                table=store.url,
                operation="deduplicate",
                hint="name columns of numbers, strings, dates or the like",
            )
