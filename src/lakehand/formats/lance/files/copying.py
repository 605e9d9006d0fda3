"""Fragments whose pages may be moved as they are: told before Lance is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.lance.connect import address, load_lance
from lakehand.formats.lance.files.fragments import DATA_DIRECTORY, described
from lakehand.formats.lance.files.staged import field_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = ["is_worth_a_look", "may_copy"]

#: A page of less than either makes scans slower for good, so it is worth being written anew.
_HEALTHY_BYTES = 4 * 2**20
_HEALTHY_ROWS = 100_000


def is_worth_a_look(inputs: Sequence[DataFile]) -> bool:
    """Say whether pages may be of a healthy size: one has no more than its fragment."""
    if any(file.rows is None for file in inputs):
        return True
    rows = sum(file.rows or 0 for file in inputs)
    return _is_enough(rows, sum(file.bytes for file in inputs), len(inputs))


def may_copy(store: Store, dataset: Any, fragments: Sequence[Any]) -> bool:
    """Say whether the pages of `fragments` mean the same in one file, and are of a healthy size.

    Lance has crossed columns whose files had them in another order, and invented ones that files
    lacked. So files must have exactly the columns of the table in its order, whatever Lance asks
    for; and that rows are the same is proved afterwards in any case.
    """
    known = [described(fragment) for fragment in fragments]
    if not known or not all(map(_is_plain, known)):
        return False
    layouts = {_layout(fragment) for fragment in known}
    fields = tuple(field_numbers(dataset.lance_schema.fields()))
    columns = tuple(range(len(fields)))
    version = tuple(map(int, dataset.data_storage_version.split(".")))
    return layouts == {(fields, columns, version)} and _is_healthy(store, known)


def _is_plain(fragment: Mapping[str, Any]) -> bool:
    """Say whether nothing but one file in the table's root tells the rows of a fragment."""
    files = fragment["files"]
    is_changed = fragment.get("deletion_file") or fragment.get("overlays")
    return len(files) == 1 and not is_changed and files[0].get("base_id") is None


def _layout(fragment: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return which column of the file is which of the table, and the version that it is of."""
    (file,) = fragment["files"]
    version = file["file_major_version"], file["file_minor_version"]
    return tuple(file["fields"]), tuple(file["column_indices"]), version


def _is_healthy(store: Store, fragments: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the pages of every column are of a healthy size as a rule."""
    load_lance()
    from lance.file import LanceFileReader

    options = store.connection_options() or None
    pages: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for fragment in fragments:
        path = f"{address(store)}/{DATA_DIRECTORY}/{fragment['files'][0]['path']}"
        metadata = LanceFileReader(path, storage_options=options).metadata()
        for number, column in enumerate(metadata.columns):
            buffers = [buffer for page in column.pages for buffer in page.buffers]
            pages[number] = pages.get(number, 0) + len(column.pages)
            sizes[number] = sizes.get(number, 0) + sum(buffer.size for buffer in buffers)
    rows = sum(fragment["physical_rows"] for fragment in fragments)
    return all(_is_enough(rows, sizes[number], count) for number, count in pages.items())


def _is_enough(rows: int, size: int, pages: int) -> bool:
    return rows >= _HEALTHY_ROWS * pages or size >= _HEALTHY_BYTES * pages
