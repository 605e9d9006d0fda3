"""Columns that are gone from a table and still in its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.lance.connect import open_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

__all__ = ["hold_dropped_columns"]


def hold_dropped_columns(store: Store, snapshot: Snapshot) -> pa.BooleanArray:
    """Say of each fragment whether it still holds columns that the table has dropped."""
    dataset = open_dataset(store, snapshot.version)
    known = set(_field_ids(dataset.lance_schema.fields()))
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    ids = [native["id"] for native in snapshot.files["native"].to_pylist()]
    return pa.array([_holds_others(fragments[id_], known) for id_ in ids], pa.bool_())


def _field_ids(fields: Any) -> Iterator[int]:
    for field in fields:
        yield field.id()
        yield from _field_ids(field.children())


def _holds_others(fragment: Any, known: set[int]) -> bool:
    return any(set(file.fields) - known for file in fragment.metadata.files)
