"""Shallow clones of a dataset, for a moment: their manifests are their own, their files are not.

Those of local tables lie in a temporary directory. Lance clones into the same store only, so others
lie beside what lakehand remembers of the table. What a killed process leaves there vacuum takes.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.errors import StorageError
from lakehand.formats.lance.connect import address

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["drop_old_clones", "open_clone"]

_DIRECTORY = "_lakehand/clones"
#: No proof takes longer.
_FORGOTTEN = timedelta(days=1)


def open_clone(store: Store, dataset: Any, *, scratch: str | None = None) -> Any:
    """Return a clone of `dataset`, which is gone when nobody uses it any more."""
    options = dict(store.connection_options()) or None
    if store.url.startswith("file://"):
        directory = tempfile.mkdtemp(prefix="lakehand-", dir=scratch)
        clone = dataset.shallow_clone(f"{directory}/clone", dataset.version)
        weakref.finalize(clone, shutil.rmtree, directory, ignore_errors=True)
        return clone
    prefix = f"{_DIRECTORY}/{uuid4().hex}"
    place = f"{address(store)}/{prefix}"
    clone = dataset.shallow_clone(place, dataset.version, storage_options=options)
    weakref.finalize(clone, _drop, store, prefix)
    return clone


def drop_old_clones(store: Store) -> None:
    """Delete clones that somebody left behind."""
    until = datetime.now(UTC) - _FORGOTTEN
    store.delete([info.key for info in store.list(_DIRECTORY) if info.modified_at < until])


def _drop(store: Store, prefix: str) -> None:
    with suppress(StorageError):
        store.delete([info.key for info in store.list(prefix)])
