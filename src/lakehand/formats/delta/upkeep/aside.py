"""Objects of a log that are set aside: out of the way of readers, and still there.

_lakehand/aside/<id>/<key>    the object that was at <key>

An object is copied first and deleted afterwards, so a crash leaves it in both places.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehand.errors import ObjectNotFoundError, StorageError
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lakehand.storage import Store

__all__ = ["ASIDE_DIRECTORY", "Aside"]

ASIDE_DIRECTORY = "_lakehand/aside"
_COPY_BYTES = 4 * 2**20


class Aside:
    """One place for all that a repair sets aside."""

    def __init__(self, store: Store, *, now: datetime) -> None:
        self._store = store
        self.directory = f"{ASIDE_DIRECTORY}/{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"
        #: Keys that were copied.
        self.copied: list[str] = []

    def copy(self, keys: Iterable[str]) -> None:
        """Copy objects, which stay where they are; those that are gone already are passed over."""
        for key in keys:
            try:
                source = self._store.open_reader(key)
            except ObjectNotFoundError:
                continue
            with source, self._store.open_writer(f"{self.directory}/{key}") as target:
                shutil.copyfileobj(source, target, _COPY_BYTES)
            self.copied.append(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects from the log that were copied before."""
        chosen = list(keys)
        uncopied = set(chosen) - set(self.copied)
        if any(self._store.exists(key) for key in uncopied):
            raise StorageError(f"{min(uncopied)} is not copied, so it is not deleted")
        for failure in self._store.delete(chosen):
            raise failure.error
        for key in chosen:
            delete_hadoop_sum(self._store, key)

    def move(self, keys: Iterable[str]) -> None:
        """Set objects aside."""
        chosen = list(keys)
        self.copy(chosen)
        self.delete(chosen)
