"""Footers of the files that a task rewrites, read once for all that it wants to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.parquet.facts import read_many_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.work import DataFile
    from lakehand.parquet.facts import FileFacts
    from lakehand.storage import Store

__all__ = ["KnownFacts"]


class KnownFacts:
    """Remembers the footers of the group of files that was asked for last.

    Files of a table never change, so what was read of them stays true. It is forgotten when it is
    sent to another process.
    """

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._facts: list[FileFacts] = []

    def __reduce__(self) -> tuple[type[KnownFacts], tuple[()]]:
        return KnownFacts, ()

    def of(self, store: Store, files: Sequence[DataFile]) -> list[FileFacts]:
        """Return what the footers of `files` say, in their order."""
        paths = tuple(file.path for file in files)
        if paths != self._paths:
            self._facts = read_many_facts(store.resolve(path) for path in paths)
            self._paths = paths
        return self._facts
