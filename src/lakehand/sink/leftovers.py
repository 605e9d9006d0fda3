"""Files that a writer left when it died, deleted by those who know that nobody wants them.

By the next sink under its id: a file of an epoch is named after the sink that wrote it and after
the epoch. Once the next sink has committed epoch k, where the table had epochs up to e before, no
version will ever name a file of an epoch after e and up to k that an earlier sink wrote: a commit
of such an epoch would carry a mark that the table has passed. Tables may forget marks, and a writer
may begin anew, so none has named it before only if no version says so that vacuum would keep; and
a table without a mark tells nothing at all. All others are left to vacuum, and so is what a sink
that is not dead after all has just begun to write.

By the driver of a write on Spark: all files of the write are named after its token, and its one
commit names those that its tasks have reported. Others are of attempts that were killed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.retention.promise import read_promise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakehand.formats.base import FormatTable
    from lakehand.model.retention import Protection
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["Leftovers", "delete_unreported", "epoch_label"]

_NAME = re.compile(r"lakehand-(?P<session>[0-9a-f]{32})-(?P<epoch>\d{10})-[^/]*")


def epoch_label(epoch: int) -> str:
    """Return the part of a file's name that tells its epoch."""
    return f"{epoch:010d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """What sinks that did not end well may have left."""

    #: Those sinks.
    sessions: frozenset[str]
    #: Newest epoch that the table had when they were gone.
    after: int
    #: Epoch that was committed since.
    upto: int

    def delete(self, table: FormatTable, settings: Settings, clock: Clock) -> int:
        """Delete them, and return how many there were: none that vacuum would keep for a version.

        RefusedError if it is not known what vacuum would keep.
        """
        keys = list(self._find(table))
        if not keys:
            return 0
        promise = read_promise(table, settings, clock)
        return _delete_unnamed(table, keys, promise.protection, for_clones=promise.held.names)

    def _find(self, table: FormatTable) -> Iterator[str]:
        for info in table.store.list():
            match = _NAME.fullmatch(info.key.rpartition("/")[2])
            if match and match["session"] in self.sessions and self._is_past(int(match["epoch"])):
                yield info.key

    def _is_past(self, epoch: int) -> bool:
        return self.after < epoch <= self.upto


def delete_unreported(
    table: FormatTable, *, token: str, reported: Collection[str], since: int
) -> int:
    """Delete what killed attempts of a write left, now that it is over; return how many files.

    A task is tried again with the same rows, so what its first attempt left lies beside what the
    last one has `reported`; nowhere else is looked. `since` is a version from before the write.
    """
    found: list[str] = []
    for directory in sorted({key.rpartition("/")[0] for key in reported}):
        table.store.delete_unfinished(directory, names=[f"{token}-"])
        keys = (info.key for info in table.store.list_directory(directory)[1])
        found += (key for key in keys if key.rpartition("/")[2].startswith(f"{token}-"))
    unreported = [key for key in found if key not in reported]
    if not unreported:
        return 0
    return _delete_unnamed(table, unreported, table.protected_since(version=since))


def _delete_unnamed(
    table: FormatTable,
    keys: list[str],
    named: Protection,
    *,
    for_clones: pa.ChunkedArray | None = None,
) -> int:
    """Delete files but those that are `named`, whatever was thought."""
    kept = [named.keys, named.pinned_keys]
    kept_names = [named.names, *([] if for_clones is None else [for_clones])]
    bare = [key.rpartition("/")[2] for key in keys]
    is_kept = pc.or_(_is_in(keys, kept), _is_in(bare, kept_names))
    doomed = pa.array(keys).filter(pc.invert(is_kept)).to_pylist()
    return len(doomed) - len(table.store.delete(doomed))


def _is_in(texts: list[str], columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pc.is_in(pa.array(texts), value_set=pa.chunked_array(chunks, pa.string()))
