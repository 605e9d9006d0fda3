"""Footers of the files that a task rewrites, read once for all that it wants to know of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehand.errors import CorruptFileError
from lakehand.parquet.facts import check_row_count, check_size, read_facts_and_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.work import DataFile
    from lakehand.parquet.facts import FileFacts
    from lakehand.storage import Store

__all__ = ["KnownFacts", "read_committed_facts"]

_PARALLEL_READS = 16


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
        """Return what the footers of `files` say, in their order.

        CorruptFileError if one is not the file that the table says.
        """
        paths = tuple(file.path for file in files)
        if paths != self._paths:
            with ThreadPoolExecutor(_PARALLEL_READS) as pool:
                self._facts = list(pool.map(lambda file: read_committed_facts(store, file), files))
            self._paths = paths
        return self._facts


def read_committed_facts(store: Store, file: DataFile) -> FileFacts:
    """Read the footer of `file`; CorruptFileError if its size or row count is another one."""
    facts, size = read_facts_and_size(*store.resolve(file.path))
    check_size(file.path, found=size, expected=file.bytes)
    if isinstance(facts, CorruptFileError):
        raise facts
    check_row_count(file.path, found=facts.rows, expected=file.rows)
    return facts
