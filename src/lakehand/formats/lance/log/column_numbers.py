"""Under which numbers files hold the columns of a version: names alone do not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    Path = tuple[str, ...]

__all__ = ["column_numbers", "keeps_columns"]


def column_numbers(dataset: Any) -> dict[Path, tuple[int, pa.DataType]]:
    """Return the number and the type of each column, and of all that is in it."""
    return dict(_columns(dataset.lance_schema.fields()))


def keeps_columns(before: Any, after: Any) -> bool:
    """Say whether files that were written for one version hold the same rows in a later one.

    Columns may have come and gone. One that has another number or type by now has not the values
    of the old one, though it may have its name.
    """
    old, new = column_numbers(before), column_numbers(after)
    path_of = {number: path for path, (number, _) in new.items()}
    return all(
        new.get(path, (number, kind)) == (number, kind) and path_of.get(number, path) == path
        for path, (number, kind) in old.items()
    )


def _columns(
    fields: Iterable[Any], above: Path = ()
) -> Iterator[tuple[Path, tuple[int, pa.DataType]]]:
    for field in fields:
        path = (*above, field.name())
        yield path, (field.id(), field.to_arrow().type)
        yield from _columns(field.children(), path)
