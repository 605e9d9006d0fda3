"""Files that a writer left when it died, deleted by those who know that nobody wants them.

By the next sink under its id: a file of an epoch is named after the sink that wrote it and after
the epoch. Once the next sink has committed epoch k, where the table had epochs up to e before, no
version names a file of an epoch after e and up to k that an earlier sink wrote, and none ever will:
a commit of such an epoch would carry a mark that the table has passed. All others are left to
vacuum, and so is what a sink that is not dead after all has just begun to write.

By the driver of a write on Spark: all files of the write are named after its token, and its one
commit names those that its tasks have reported. Others are of attempts that were killed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakehand.formats.base import FormatTable

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
    #: Newest epoch that the table had when they were gone; None if none.
    after: int | None
    #: Epoch that was committed since.
    upto: int
    #: Version that the table had before: a file that a later one names stays, whatever was thought.
    version: int

    def delete(self, table: FormatTable) -> int:
        """Delete them, and return how many there were. Looks into the log once more before."""
        return _delete_unnamed(table, list(self._find(table)), since=self.version)

    def _find(self, table: FormatTable) -> Iterator[str]:
        for info in table.store.list():
            match = _NAME.fullmatch(info.key.rpartition("/")[2])
            if match and match["session"] in self.sessions and self._is_past(int(match["epoch"])):
                yield info.key

    def _is_past(self, epoch: int) -> bool:
        return (-1 if self.after is None else self.after) < epoch <= self.upto


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
    return _delete_unnamed(table, [key for key in found if key not in reported], since=since)


def _delete_unnamed(table: FormatTable, keys: Sequence[str], *, since: int) -> int:
    """Delete files but those that a version after `since` names, whatever was thought."""
    if not keys:
        return 0
    named = table.protected_since(version=since)
    kept = {*named.keys.to_pylist(), *named.names.to_pylist()}
    doomed = [key for key in keys if key not in kept and key.rpartition("/")[2] not in kept]
    return len(doomed) - len(table.store.delete(doomed))
