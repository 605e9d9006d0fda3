"""Indices brought up to date with rows that came after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitConflictError, CorruptFileError
from lakehand.formats.lance.commits.properties import is_conflict
from lakehand.formats.lance.connect import open_dataset, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.lance.log.state import LanceState
    from lakehand.storage import Store

__all__ = ["update_indices"]

#: Indices that Lance keeps for itself begin so.
_OWN = "__"
_ATTEMPTS = 5


def update_indices(store: Store, *, since: LanceState | None = None) -> tuple[str, ...]:
    """Have Lance add rows that they do not know to indices; return the names of these indices.

    With `since` only to those that knew fragments of that version which are gone.

    CommitConflictError if others changed the table meanwhile, again and again: it is as it was.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        dataset = open_dataset(store)
        behind = tuple(sorted(_behind(dataset, since)))
        if not behind:
            return ()
        try:
            dataset.optimize.optimize_indices(index_names=list(behind))
        except (OSError, ValueError, RuntimeError) as error:
            if not is_conflict(error) or attempt == _ATTEMPTS:
                raise _failure(store, behind, error) from None
        else:
            return behind
    raise AssertionError("every attempt returns or raises")


def _behind(dataset: Any, since: LanceState | None) -> Iterator[str]:
    """Yield the names of indices that do not know all fragments."""
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    for index in dataset.describe_indices():
        known = {number for part in index.segments for number in part.fragment_ids}
        is_concerned = since is None or since.known.get(index.name, frozenset()) - fragments
        if is_concerned and not index.name.startswith(_OWN) and fragments - known:
            yield index.name


def _failure(
    store: Store, names: tuple[str, ...], error: Exception
) -> CommitConflictError | CorruptFileError:
    kind = CommitConflictError if is_conflict(error) else CorruptFileError
    return kind(
        f"indices of {store.url} ({', '.join(names)}) are not up to date: {said(error, store)}",
        table=store.url,
        hint="searches find all rows as before, only slower; run again",
    )
