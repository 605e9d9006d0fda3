"""Fragments that no version has yet, read as a reader of the committed table would.

They become a dataset of their own, whose one manifest lies in memory and whose data files are
those in the table's root. Nothing is written to the table for it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.formats.lance.connect import address, load_lance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.storage import Store

__all__ = ["open_marked", "open_staged", "stored_rows"]

_BASE = 1


def open_staged(store: Store, like: Any, fragments: Sequence[Mapping[str, Any]]) -> Any:
    """Return a dataset of new `fragments` only, with the columns of the dataset `like`."""
    lance = load_lance()
    operation = lance.LanceOperation.Overwrite(
        like.lance_schema,
        [_based(lance, fragment, _BASE) for fragment in fragments],
        initial_bases=[lance.DatasetBasePath(address(store), id=_BASE, is_dataset_root=True)],
    )
    return lance.LanceDataset.commit(
        f"memory://lakehand-{uuid4().hex}",
        operation,
        enable_stable_row_ids=like.has_stable_row_ids,
        storage_options=dict(store.connection_options()) or None,
    )


@contextmanager
def open_marked(
    store: Store, dataset: Any, fragments: Sequence[Mapping[str, Any]], *, scratch: str | None
) -> Iterator[Any]:
    """Hand out a dataset that has `fragments` of `dataset` with other rows deleted.

    Deletions are of fragments by their numbers, which a new dataset would not keep. So this is a
    shallow clone of all of them, whose manifests lie on local disk.
    """
    lance, options = load_lance(), dict(store.connection_options()) or None
    with TemporaryDirectory(prefix="lakehand-", dir=scratch) as directory:
        place = f"{directory}/clone"
        clone = dataset.shallow_clone(place, dataset.version, storage_options=options)
        base = next(iter(clone.base_paths()))
        marked = [_based(lance, fragment, base) for fragment in fragments]
        deletion = lance.LanceOperation.Delete(marked, [], "")
        yield lance.LanceDataset.commit(
            clone, deletion, read_version=clone.version, storage_options=options
        )


def stored_rows(store: Store, key: str) -> int:
    """Return how many rows a data file says it holds, as storage gives it back."""
    load_lance()
    from lance.file import LanceFileReader

    options = store.connection_options() or None
    reader = LanceFileReader(f"{address(store)}/{key}", storage_options=options)
    return int(reader.metadata().num_rows)


def _based(lance: Any, fragment: Mapping[str, Any], base: int) -> Any:
    """Return a fragment whose files lie in another root."""
    based = {**fragment, "files": [{**file, "base_id": base} for file in fragment["files"]]}
    if fragment.get("deletion_file"):
        based["deletion_file"] = {**fragment["deletion_file"], "base_id": base}
    return lance.fragment.FragmentMetadata.from_json(json.dumps(based))
