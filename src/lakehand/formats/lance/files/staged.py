"""Fragments that no version has yet, read as a reader of the committed table would.

They become a dataset of their own, whose one manifest lies in memory and whose data files are
those in the table's root. Nothing is written to the table for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.formats.lance.connect import address, load_lance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.storage import Store

__all__ = ["open_staged", "stored_rows"]

_BASE = 1


def open_staged(store: Store, like: Any, fragments: Sequence[Mapping[str, Any]]) -> Any:
    """Return a dataset of `fragments` only, with the columns of the dataset `like`."""
    lance = load_lance()
    root = address(store)
    options = store.connection_options()
    operation = lance.LanceOperation.Overwrite(
        like.lance_schema,
        [_based(lance, fragment) for fragment in fragments],
        initial_bases=[lance.DatasetBasePath(root, id=_BASE, is_dataset_root=True)],
    )
    return lance.LanceDataset.commit(
        f"memory://lakehand-{uuid4().hex}",
        operation,
        enable_stable_row_ids=like.has_stable_row_ids,
        storage_options=dict(options) or None,
    )


def stored_rows(store: Store, key: str) -> int:
    """Return how many rows a data file says it holds, as storage gives it back."""
    load_lance()
    from lance.file import LanceFileReader

    options = store.connection_options() or None
    reader = LanceFileReader(f"{address(store)}/{key}", storage_options=options)
    return int(reader.metadata().num_rows)


def _based(lance: Any, fragment: Mapping[str, Any]) -> Any:
    files = [{**file, "base_id": _BASE} for file in fragment["files"]]
    return lance.fragment.FragmentMetadata.from_json(json.dumps({**fragment, "files": files}))
