"""Fragments that no version has yet, read as a reader of the committed table would.

They become a separate dataset, whose data files are those in the table's root. Its one manifest is
in memory. Where Lance would renumber columns in such a dataset, and where rows are deleted of
fragments that are identified by their numbers, it is a clone of the table instead.
"""

from __future__ import annotations

import json
import weakref
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.formats.lance.connect import address, load_lance, translated
from lakehand.formats.lance.dataset_cache import open_clone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakehand.storage import Store

_BASE = 1


def open_staged(store: Store, like: Any, fragments: Sequence[Mapping[str, Any]]) -> Any:
    """Return a dataset of new `fragments` only, with the columns of the dataset `like`."""
    staged = _in_memory(store, like, fragments)
    if staged is not None:
        return staged
    update = load_lance().LanceOperation.Update
    gone = [fragment.fragment_id for fragment in like.get_fragments()]
    return _commit(
        store,
        open_clone(store, like),
        lambda base: update(
            removed_fragment_ids=gone, new_fragments=[_based(one, base) for one in fragments]
        ),
    )


def open_empty(store: Store, like: Any) -> Any:
    """Return a dataset that is not the table, to write files into for its columns."""
    empty = _in_memory(store, like, [])
    return open_clone(store, like) if empty is None else empty


def open_marked(
    store: Store, dataset: Any, fragments: Sequence[Mapping[str, Any]], *, scratch: str | None
) -> Any:
    """Return a dataset that has `fragments` of `dataset` with other rows deleted."""
    delete = load_lance().LanceOperation.Delete
    return _commit(
        store,
        open_clone(store, dataset, scratch=scratch),
        lambda base: delete([_based(one, base) for one in fragments], [], ""),
    )


def _in_memory(store: Store, like: Any, fragments: Sequence[Mapping[str, Any]]) -> Any | None:
    """Return a dataset of `fragments`; None if its columns would not have the table's numbers."""
    lance = load_lance()
    numbers = list(field_numbers(like.lance_schema.fields()))
    if numbers != list(range(len(numbers))):
        return None
    operation = lance.LanceOperation.Overwrite(
        like.lance_schema,
        [_based(fragment, _BASE) for fragment in fragments],
        initial_bases=[lance.DatasetBasePath(address(store), id=_BASE, is_dataset_root=True)],
    )
    staged = lance.LanceDataset.commit(
        f"memory://lakehand-{uuid4().hex}",
        operation,
        enable_stable_row_ids=like.has_stable_row_ids,
        storage_options=dict(store.connection_options()) or None,
    )
    return staged if list(field_numbers(staged.lance_schema.fields())) == numbers else None


def field_numbers(fields: Any) -> Iterator[int]:
    """Return the numbers by which files know fields, those of members after their own."""
    for field in fields:
        yield field.id()
        yield from field_numbers(field.children())


def _commit(store: Store, clone: Any, operation: Callable[[int], Any]) -> Any:
    """Return a clone after an operation that is told which number the table's root has there."""
    (base,) = clone.base_paths()
    committed = load_lance().LanceDataset.commit(
        clone,
        operation(base),
        read_version=clone.version,
        storage_options=dict(store.connection_options()) or None,
    )
    # The clone lives as long as the dataset is referenced.
    weakref.finalize(committed, id, clone)
    return committed


def stored_rows(store: Store, key: str) -> int:
    """Return how many rows a data file says it holds, as storage gives it back."""
    load_lance()
    from lance.file import LanceFileReader

    options = store.connection_options() or None
    with translated(store, "to read fragments"):
        reader = LanceFileReader(f"{address(store)}/{key}", storage_options=options)
        return int(reader.metadata().num_rows)


def _based(fragment: Mapping[str, Any], base: int) -> Any:
    """Return a fragment whose files lie in another root."""
    based = {**fragment, "files": [{**file, "base_id": base} for file in fragment["files"]]}
    if fragment.get("deletion_file"):
        based["deletion_file"] = {**fragment["deletion_file"], "base_id": base}
    return load_lance().fragment.FragmentMetadata.from_json(json.dumps(based))
