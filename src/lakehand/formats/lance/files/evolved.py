"""A version of a dataset with further columns, before any commit says so.

Lance gives columns numbers, by which files know them. It is asked for them: it adds the columns to
a shallow clone, which has the table's numbers, those of columns that were dropped among them.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import RefusedError
from lakehand.formats.lance.connect import said
from lakehand.formats.lance.files.clones import open_clone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.storage import Store

__all__ = ["added_columns", "evolved_dataset", "told_columns", "untold_columns"]

_COLUMNS = "columns"


def added_columns(store: Store, known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the columns of `wanted` that are new; RefusedError if known ones would change."""
    for column in known:
        index = wanted.get_field_index(column.name)
        if index >= 0 and wanted.field(index).type != column.type:
            raise _refused(
                store,
                f"column {column.name!r} cannot become {wanted.field(index).type} from"
                f" {column.type}: lakehand adds whole columns to Lance tables, and changes none",
            )
    new = [column.with_nullable(True) for column in wanted if column.name not in known.names]  # noqa: FBT003
    return pa.schema(new)


def evolved_dataset(store: Store, dataset: Any, added: pa.Schema) -> Any:
    """Return a dataset like `dataset` that has the columns `added`, too."""
    missing = [column for column in added if column.name not in dataset.schema.names]
    if not missing:
        return dataset
    clone = open_clone(store, dataset)
    try:
        clone.add_columns(pa.schema(missing))
    except (OSError, ValueError, RuntimeError) as error:
        names = ", ".join(repr(column.name) for column in missing)
        raise _refused(store, f"Lance does not add {names}: {said(error, store)}") from None
    return clone


def told_columns(added: pa.Schema) -> Mapping[str, Any]:
    """Return what a commit must say to add columns."""
    return {_COLUMNS: base64.b64encode(added.serialize()).decode()}


def untold_columns(native: Sequence[Mapping[str, Any]]) -> pa.Schema | None:
    """Return the columns that a commit is to add; None if it adds none."""
    if not native:
        return None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(native[0][_COLUMNS])))


def _refused(store: Store, why: str) -> RefusedError:
    return RefusedError(
        f"{store.url} does not take on these columns: {why}",
        table=store.url,
        operation="append",
        feature="evolution",
        hint="nothing was written",
    )
