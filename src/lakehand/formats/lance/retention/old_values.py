"""What versions and indices of a dataset hold beyond the rows of its newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.formats.lance.commits.rows import commit_rows
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.log.history import history, iter_history
from lakehand.model.purging import OldValues
from lakehand.model.work import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.model.history import HistoryEntry
    from lakehand.storage import Store

__all__ = ["add_version_after_predicate", "find_old_values"]

#: Operations after which every row of the version before is still there.
_KEEPS_ROWS = frozenset({"Append", "CreateIndex", "UpdateConfig", "append", "purge"})
#: What a commit may say of itself that names values.
_PREDICATES = ("predicate", "where")
_OWN = "__"


def find_old_values(store: Store) -> OldValues:
    """Return the newest version that removed rows or columns, and indices that know deleted rows.

    Manifests and transactions are deleted with the files of their versions, by vacuum.
    """
    clean = _first_without_values(store)
    return OldValues(
        version=clean.version if clean else None,
        at=clean.at if clean else None,
        in_history=False,
        indices=tuple(sorted(_stale_indices(open_dataset(store)))),
    )


def add_version_after_predicate(store: Store, *, attempts: int) -> bool:
    """Commit a version without changes if the newest one was made by a predicate.

    What names the predicate stays as long as its version, and the newest version stays for good.
    """
    (newest,) = history(store, limit=1)
    if not _names_values(newest.parameters):
        return False
    change = Change(kind="append", base_version=newest.version, operation="purge")
    commit_rows(store, change, token=f"lakehand-purge-{uuid4().hex}", attempts=attempts)
    return True


def _first_without_values(store: Store) -> HistoryEntry | None:
    """Return the version of the newest removal, or the one after it if that names a predicate.

    None if no version that is still there removed anything.
    """
    later = None
    for entry in iter_history(store):
        if entry.operation not in _KEEPS_ROWS:
            return later if later is not None and _names_values(entry.parameters) else entry
        later = entry
    return None


def _names_values(parameters: Mapping[str, Any]) -> bool:
    return any(parameters.get(name) for name in _PREDICATES)


def _stale_indices(dataset: Any) -> Iterator[str]:
    """Yield indices that know fragments which are gone: Lance leaves their rows in the index."""
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    for index in dataset.describe_indices():
        known = {number for part in index.segments for number in part.fragment_ids}
        if not index.name.startswith(_OWN) and known - fragments:
            yield index.name
